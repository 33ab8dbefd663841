"""One commit over PostgreSQL and a topic from Python, Java and Go: the services of docs/examples, which are killed.

They share one table: each finishes what a service in another language has left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing.process import ProcessBroker
from fencepost.testing.remote import RemoteBroker
from tests.compat.two_phase_shop import Shop, kill_at_random, leave_token, shop_on
from tests.support.broker_processes import BrokerProcesses
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.postgres_over_tcp import PostgresPort, postgres_over_tcp

pytestmark = [pytest.mark.compat, pytest.mark.timeout(240)]

OTHERS = ("two-phase-java", "two-phase-go")
WRITERS = ("python", *OTHERS)
REFUSED = (
    "7:32768:order-service-1",
    "07:0:order-service-1",
    "7:0:",
    "-1:0:order-service-1",
    "7:0",
    "9223372036854775808:0:order-service-1",
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[tuple[PostgresServer, PostgresPort]]:
    with postgres_server() as server, postgres_over_tcp(server.uri) as port:
        yield server, port


@pytest.fixture
def shop(fencepost: Any, postgres: tuple[PostgresServer, PostgresPort]) -> Iterator[Shop]:
    with shop_on(fencepost, postgres) as made:
        yield made


@pytest.mark.parametrize(
    ("writer", "finisher"),
    [
        *(
            (writer, finisher)
            for writer in WRITERS
            for finisher in WRITERS
            if (writer, finisher) != ("python", "python")
        ),
        ("two-phase-java-3.9", "two-phase-go"),
        ("two-phase-go", "two-phase-java-3.9"),
    ],
)
def test_a_token_of_one_language_is_finished_in_another(shop: Shop, writer: str, finisher: str) -> None:
    leave_token(shop, writer, "tea")
    shop.run(finisher, ["tea", "milk"])
    shop.assert_whole(["tea", "milk"])


@pytest.mark.parametrize(
    ("language", "texts"),
    [("two-phase-java", REFUSED[:2]), ("two-phase-go", REFUSED)],
)
def test_a_text_that_is_no_token_ends_nothing(shop: Shop, language: str, texts: Sequence[str]) -> None:
    leave_token(shop, "two-phase-go", "tea")
    (token,) = shop.database.tokens()
    for text in texts:
        shop.execute(f"UPDATE fencepost_prepared SET token = '{text}'")
        with shop.started(language, []) as service:
            code, errors = service.ended()
        assert code != 0
        assert text in errors
        assert (shop.database.tokens(), shop.state()) == ([text], "Ongoing")
    shop.execute(f"UPDATE fencepost_prepared SET token = '{token}'")
    shop.run(language)
    shop.assert_whole(["tea"])


def test_each_language_makes_the_same_table(fencepost: Any, postgres: tuple[PostgresServer, PostgresPort]) -> None:
    made = []
    for language in WRITERS:
        with shop_on(fencepost, postgres) as shop:
            shop.run(language)
            made.append(
                shop.database.query(
                    "SELECT attribute.attname, format_type(attribute.atttypid, attribute.atttypmod), "
                    "attribute.attnotnull FROM pg_attribute AS attribute WHERE attribute.attnum > 0 "
                    "AND attribute.attrelid = 'fencepost_prepared'::regclass ORDER BY attribute.attnum"
                )
            )
    expected = [("transactional_id", "text", True), ("generation", "bigint", True), ("token", "text", False)]
    assert made == [expected] * len(WRITERS)


@pytest.mark.parametrize(
    ("language", "api", "after"),
    [
        ("two-phase-java", "Produce", 0),
        ("two-phase-java", "DescribeTransactions", 3),  # three are of its start; this one finds the pair
        ("two-phase-go", "Produce", 0),
    ],
)
def test_a_slow_service_commits_nothing_once_its_successor_has_claimed(
    shop: Shop, language: str, api: str, after: int
) -> None:
    fault = shop.broker.hold(api, count=1, after=after)
    with shop.started(language, ["tea"]) as slow:
        fault.wait_until_fired(timeout=30)
        slow.freeze()
        fault.release()
        shop.run("two-phase-go", ["honey"])
        slow.thaw()
        code, errors = slow.ended()
    assert code != 0
    assert "another session has claimed order-service-1" in errors
    shop.assert_whole(["honey"])


@pytest.mark.parametrize("language", OTHERS)
def test_what_a_slow_service_has_committed_in_the_database_is_finished_by_its_successor(
    shop: Shop, language: str
) -> None:
    fault = shop.broker.hold("EndTxn", count=1, on="request")
    with shop.started(language, ["tea", "milk"]) as slow:
        fault.wait_until_fired(timeout=30)
        slow.freeze()
        shop.run(language, ["honey"])
        fault.release()
        slow.thaw()
        code, errors = slow.ended()
    assert code != 0
    assert "session" in errors, errors
    shop.assert_whole(["tea", "honey"])


HOLDS = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE state = 'idle in transaction'"


@pytest.mark.parametrize("language", OTHERS)
def test_a_service_that_is_late_in_its_start_aborts_nothing_though_its_hold_is_lost(shop: Shop, language: str) -> None:
    fault = shop.broker.hold("InitProducerId", after=1, count=1, on="request")  # the first one is the guard
    with shop.started(language, ["tea"]) as late:
        fault.wait_until_fired(timeout=30)
        shop.execute(HOLDS)
        leave_token(shop, language, "milk")
        fault.release()
        code, errors = late.ended()
    assert code != 0
    assert "another session of order-service-1 has an open transaction" in errors
    assert shop.state() == "Ongoing"
    shop.run(language, ["tea"])
    shop.assert_whole(["tea", "milk"])


FAILING_COMMIT = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER failing AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.name = 'lost') EXECUTE FUNCTION fail()
"""


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize(
    ("statement", "state"),
    [("RAISE EXCEPTION 'no'", "CompleteAbort"), ("PERFORM pg_terminate_backend(pg_backend_pid())", "Ongoing")],
    ids=["refused", "lost"],
)
def test_a_commit_that_fails_is_aborted_only_if_the_database_says_so(
    shop: Shop, language: str, statement: str, state: str
) -> None:
    shop.run(language, ["tea"])
    shop.execute(FAILING_COMMIT.format(statement=statement))
    with shop.started(language, ["lost", "milk"]) as service:
        code, _ = service.ended()
    assert code != 0
    shop.broker.wait_until(lambda: shop.state() == state, 10, lambda: f"the state is {shop.state()}")
    assert shop.records() == ["tea"]
    shop.execute("DROP TRIGGER failing ON orders")
    shop.run(language, ["lost", "milk"])
    shop.assert_whole(["tea", "lost", "milk"])


@pytest.mark.parametrize("language", OTHERS)
def test_a_commit_that_comes_after_its_service_has_lost_the_database_is_finished_by_the_next_one(
    shop: Shop, language: str
) -> None:
    shop.run(language, ["tea"])
    shop.execute(FAILING_COMMIT.format(statement="PERFORM pg_sleep(1)"))
    with shop.started(language, ["lost", "milk"]) as service:
        shop.wait_for_sleep()
        shop.port.cut()
        code, errors = service.ended()
    assert code != 0
    assert "indoubt" in errors.lower().replace(" ", "")
    shop.run(language, ["milk"])  # its claim waits for that commit
    shop.assert_whole(["tea", "lost", "milk"])


@pytest.mark.parametrize(
    ("languages", "kills", "seed"),
    [
        (["two-phase-go"], 8, 2),
        (["two-phase-java-3.9", "python", "two-phase-go"], 6, 3),
        (["two-phase-java"], 3, 1),
        pytest.param(["two-phase-java"], 10, 1, marks=pytest.mark.long),
        pytest.param(["two-phase-go"], 32, 2, marks=pytest.mark.long),
        pytest.param(["two-phase-java-3.9", "python", "two-phase-go"], 12, 3, marks=pytest.mark.long),
    ],
    ids=["go", "mixed", "java", "java-long", "go-long", "mixed-long"],
)
def test_services_that_are_killed_at_random_lose_and_double_nothing(
    fencepost_process: ProcessBroker,
    postgres: tuple[PostgresServer, PostgresPort],
    languages: list[str],
    kills: int,
    seed: int,
) -> None:
    def kill_broker() -> None:
        fencepost_process.kill()
        fencepost_process.restart()

    with shop_on(fencepost_process, postgres) as shop:
        kill_at_random(shop, languages, kills=kills, seed=seed, broker_dies=kill_broker)


@pytest.mark.parametrize("kills", [6, pytest.param(18, marks=pytest.mark.long)])
def test_nor_against_a_broker_of_three_processes(
    postgres: tuple[PostgresServer, PostgresPort], tmp_path: Path, kills: int
) -> None:
    with BrokerProcesses(tmp_path / "data", 3) as processes:
        numbers = count(0)

        def kill_node() -> None:
            node_id = processes.node_ids[next(numbers) % processes.count]
            processes.wait_for_another(node_id, than=processes.kill_node(node_id))
            processes.wait_for_answer(node_id)

        broker = RemoteBroker(processes.bootstrap)
        with shop_on(broker, postgres) as shop:
            kill_at_random(shop, ["two-phase-go"], kills=kills, seed=4, broker_dies=kill_node)
        broker.close_helpers()
