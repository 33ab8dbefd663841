"""What the process that reads values answers."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fencepost.schemas import worker
from fencepost.schemas.schema import Kind, Schema
from fencepost.schemas.worker import Desk, codec_of

NUMBER = Schema(Kind.AVRO, '"int"')
READING = {"schema": "n", "content": base64.b64encode(b"\x06").decode(), "indexes": []}


def desk_with(schema: Schema) -> Desk:
    desk = Desk()
    assert desk.answer({"define": "n", "schema": schema.to_json()}) == {}
    return desk


def test_values_are_read_and_written() -> None:
    desk = desk_with(NUMBER)
    assert desk.answer(READING) == {"value": 3}
    assert desk.answer({"schema": "n", "value": 3, "message": ""}) == {"content": READING["content"], "indexes": None}
    assert "must be of the type int" in desk.answer({"schema": "n", "value": "x", "message": ""})["error"]


@pytest.mark.parametrize(
    ("kind", "text"), [(Kind.AVRO, '"int"'), (Kind.PROTOBUF, 'syntax = "proto3"; message A {}'), (Kind.JSON, "{}")]
)
def test_each_kind_has_its_codec(kind: Kind, text: str) -> None:
    assert kind.name.lower() in type(codec_of(Schema(kind, text))).__name__.lower()


def test_a_schema_that_cannot_be_used_is_the_reason_of_each_value() -> None:
    desk = desk_with(Schema(Kind.AVRO, "{"))
    answers = [desk.answer(READING) for _ in range(2)]
    assert answers[0] == answers[1]
    assert "cannot be read" in answers[0]["error"]


@pytest.mark.parametrize("failure", [MemoryError(), KeyError("x\ny"), RuntimeError()])
def test_what_a_library_raises_fails_one_value(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def decode(self, *_: Any) -> Any:
            raise failure

    monkeypatch.setattr(worker, "codec_of", lambda _: Failing())
    answer = desk_with(NUMBER).answer(READING)
    assert list(answer) == ["error"]
    assert "\n" not in answer["error"]


def test_a_schema_at_which_a_library_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Schema) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(worker, "codec_of", fail)
    assert "ZeroDivisionError" in desk_with(NUMBER).answer(READING)["error"]
