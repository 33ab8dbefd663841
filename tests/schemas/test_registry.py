"""Questions to a registry, good and bad ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import pytest

from fencepost.schemas import registry as registry_module
from fencepost.schemas.options import RegistryOptions
from fencepost.schemas.registry import NotRegisteredError, Registered, Registry, RegistryError
from fencepost.schemas.schema import Kind, Schema, SchemaError, Subject
from fencepost.soak.free_port import free_port
from tests.support.schema_registry import SchemaRegistry, wait_until_asked


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


@pytest.fixture
async def registry(server: SchemaRegistry) -> AsyncIterator[Registry]:
    made = Registry(RegistryOptions((server.url,)))
    yield made
    await made.close()


async def ask(registry: Registry, schema_id: int, timeout_s: float = 20) -> Registered | SchemaError:
    return (await registry.find([schema_id], timeout_s))[schema_id]


async def test_a_schema_is_asked_for_once_by_however_many(server: SchemaRegistry, registry: Registry) -> None:
    schema_id = server.register("orders-value", '"int"')
    found = await asyncio.gather(*(ask(registry, schema_id) for _ in range(20)))
    assert set(found) == {Registered(Schema(Kind.AVRO, '"int"'), (Subject("orders-value", 1),), schema_id)}
    await ask(registry, schema_id)
    assert sorted(server.asked) == [f"/schemas/ids/{schema_id}", f"/schemas/ids/{schema_id}/versions"]


async def test_a_label_names_the_topics_own_subject_if_the_schema_has_it(
    server: SchemaRegistry, registry: Registry
) -> None:
    server.register("a-value", '"string"')
    for subject in ("a-value", "b-value"):
        schema_id = server.register(subject, '"int"')
    found = await ask(registry, schema_id)
    assert isinstance(found, Registered)
    assert found.label("b-value") == "Avro b-value version 1"
    assert found.label("c-value") == "Avro a-value version 2"
    assert Registered(found.schema, (), 5).label("x") == "Avro id 5"


async def test_a_schema_comes_with_all_that_it_refers_to(server: SchemaRegistry, registry: Registry) -> None:
    server.register("c", "C", "PROTOBUF")
    server.register("b", "B", "PROTOBUF", [{"name": "c.proto", "subject": "c", "version": 1}])
    both = [{"name": "b.proto", "subject": "b", "version": 1}, {"name": "c.proto", "subject": "c", "version": 1}]
    found = await ask(registry, server.register("a", "A", "PROTOBUF", both))
    assert isinstance(found, Registered)
    assert found.schema == Schema(Kind.PROTOBUF, "A", (("c.proto", "C"), ("b.proto", "B")))


async def test_a_circle_of_references_ends(server: SchemaRegistry, registry: Registry) -> None:
    server.register("a", "A", "PROTOBUF", [{"name": "b.proto", "subject": "b", "version": 1}])
    server.register("b", "B", "PROTOBUF", [{"name": "a.proto", "subject": "a", "version": 1}])
    found = await ask(registry, 1)
    assert isinstance(found, Registered)
    assert [name for name, _ in found.schema.dependencies] == ["a.proto", "b.proto"]


async def test_too_many_and_too_large_references_are_refused(server: SchemaRegistry, registry: Registry) -> None:
    for number in range(120):
        after = [{"name": f"{number}.proto", "subject": f"{number - 1}", "version": 1}] if number else []
        last = server.register(f"{number}", f"text {number}", "PROTOBUF", after)
    server.register("large", "x" * 700_000, "PROTOBUF")
    twice = [{"name": name, "subject": "large", "version": 1} for name in ("one", "two")]
    large = server.register("larger", "y", "PROTOBUF", twice)
    assert "more than 100 others" in str(await ask(registry, last))
    assert "1,048,576 characters" in str(await ask(registry, large))


async def test_an_unknown_id_is_remembered_shortly(
    server: SchemaRegistry, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert isinstance(await ask(registry, 99), NotRegisteredError)
    assert server.asked.count("/schemas/ids/99") == 1
    monkeypatch.setattr(registry_module, "UNKNOWN_FOR_S", 0)
    await ask(registry, 98)
    await ask(registry, 98)
    assert server.asked.count("/schemas/ids/98") == 2


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ("garbage", "the answer of the schema registry cannot be used"),
        ("wrong", "the answer of the schema registry cannot be used"),
        ("huge", "it has more than 4,194,304 bytes"),
        ("redirect", "points to another address"),
        ("failing", "status 500: the store is gone"),
    ],
)
async def test_a_bad_answer_is_a_reason(server: SchemaRegistry, registry: Registry, mood: str, reason: str) -> None:
    schema_id = server.register("orders-value", '"int"')
    server.mood = mood
    found = await ask(registry, schema_id)
    assert isinstance(found, RegistryError)
    assert reason in str(found)
    assert len(server.asked) <= 3, "a redirect is not followed"


async def test_a_slow_registry_holds_nobody_up_and_is_heard_later(server: SchemaRegistry, registry: Registry) -> None:
    schema_id = server.register("orders-value", '"int"')
    server.mood = "slow"
    started_s = time.monotonic()
    found = await ask(registry, schema_id, 0.2)
    assert "has not answered within 0.2 s" in str(found)
    assert time.monotonic() - started_s < 15
    await wait_until_asked(server, 2)
    server.mood = "well"
    server.released.set()
    assert isinstance(await ask(registry, schema_id), Registered)


async def test_a_registry_that_is_away_is_asked_once_for_a_page_of_records() -> None:
    registry = Registry(RegistryOptions((f"http://127.0.0.1:{free_port()}",)))
    started_s = time.monotonic()
    found = await registry.find(list(range(200)), 20)
    assert all("cannot be reached" in str(one) for one in found.values())
    assert time.monotonic() - started_s < 15
    await registry.close()


async def test_the_next_address_is_asked_if_one_is_away(server: SchemaRegistry) -> None:
    registry = Registry(RegistryOptions((f"http://127.0.0.1:{free_port()}", server.url)))
    assert isinstance(await ask(registry, server.register("a", '"int"')), Registered)
    await registry.close()


async def test_a_name_and_a_password_are_sent_and_a_refusal_has_its_reason() -> None:
    with SchemaRegistry(user="ann:hunter2") as server:
        schema_id = server.register("orders-value", '"int"')
        for user, expected in ((("ann", "hunter2"), Registered), (("ann", "x"), RegistryError), (None, RegistryError)):
            registry = Registry(RegistryOptions((server.url,), user))
            found = await ask(registry, schema_id)
            assert isinstance(found, expected)
            assert "hunter2" not in str(found)
            await registry.close()


async def test_a_guid_names_a_schema_too(server: SchemaRegistry, registry: Registry) -> None:
    server.register("orders-value", '"int"')
    guid = UUID(server.guid(1))
    found = (await registry.find([guid], 20))[guid]
    assert isinstance(found, Registered)
    assert found.label("orders-value") == "Avro orders-value version 1"


async def test_odd_names_of_subjects_are_quoted(server: SchemaRegistry, registry: Registry) -> None:
    name = "../\u202e?#/" + "n" * 249
    server.register(name, "B", "PROTOBUF")
    found = await ask(registry, server.register("a", "A", "PROTOBUF", [{"name": "b", "subject": name, "version": 1}]))
    assert isinstance(found, Registered)
    assert found.schema.dependencies == (("b", "B"),)


async def test_an_unexpected_failure_is_logged(
    server: SchemaRegistry, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(registry, "_read", fail)
    assert "the log has the reason" in str(await ask(registry, 1))
    assert "ZeroDivisionError" in caplog.text


async def test_a_subject_has_a_latest_version_and_others(server: SchemaRegistry, registry: Registry) -> None:
    for text in ('"int"', '"long"'):
        server.register("orders-value", text)
    latest, first = await registry.by_subject("orders-value"), await registry.by_subject("orders-value", 1)
    assert (latest.schema.text, latest.subjects) == ('"long"', (Subject("orders-value", 2),))
    assert (first.schema.text, first.schema_id) == ('"int"', 1)
    with pytest.raises(NotRegisteredError):
        await registry.by_subject("none")
    with pytest.raises(NotRegisteredError):
        await registry.by_id(9)


async def test_a_schema_is_registered_with_its_kind(server: SchemaRegistry, registry: Registry) -> None:
    made = await registry.register("people-value", Kind.JSON, "{}")
    assert made.schema_id is not None
    assert (await registry.by_id(made.schema_id)).schema == Schema(Kind.JSON, "{}")
