"""The wire holds what it is asked to hold, and what it records of transactions is what happened."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from fencepost.protocol.api_keys import ApiKey
from tests.spark.world import Point, World, world

pytestmark = pytest.mark.integration


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world("fencepost", tmp_path) as made:
        yield made


def producer(bootstrap: str, transactional_id: str) -> Any:
    made = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    made.init_transactions(20)
    made.begin_transaction()
    return made


def test_a_reply_that_is_held_belongs_to_a_request_that_has_taken_effect(here: World) -> None:
    flow = here.flow("held", batches=0, expected=["1"])
    hold = here.wire.hold(Point("held", "task", ApiKey.END_TXN, decided=0, is_reply=True))
    writer = producer(here.wire.bootstrap, "held-0123abcd-0-0")
    writer.produce(flow.target, "1#first")
    committing = threading.Thread(target=writer.commit_transaction, args=(20,))
    committing.start()
    hold.wait()
    assert here.values(flow) == ["1"]
    assert committing.is_alive()
    here.wire.release(hold)
    committing.join(20)
    assert not committing.is_alive()


def test_a_request_that_is_held_and_dropped_is_sent_again_by_its_client(here: World) -> None:
    flow = here.flow("held", batches=0, expected=["1"])
    hold = here.wire.hold(Point("held", "task", ApiKey.END_TXN, decided=0))
    writer = producer(here.wire.bootstrap, "held-0123abcd-0-0")
    writer.produce(flow.target, "1#first")
    committing = threading.Thread(target=writer.commit_transaction, args=(20,))
    committing.start()
    hold.wait()
    assert here.values(flow) == []
    here.wire.drop(hold)
    committing.join(20)
    assert here.values(flow) == ["1"]


def test_the_history_of_committed_and_aborted_transactions_is_valid(here: World) -> None:
    flow = here.flow("recorded", batches=0, expected=["1"])
    for number, is_committed in ((1, True), (2, False)):
        writer = producer(here.wire.bootstrap, f"recorded-0123abcd-{number}-0")
        writer.produce(flow.target, f"{number}#first")
        writer.flush(20)
        (writer.commit_transaction if is_committed else writer.abort_transaction)(20)
    here.assert_history_is_valid()


def test_a_history_with_a_record_that_is_not_there_is_not(here: World) -> None:
    flow = here.flow("lost", batches=0, expected=["1"])
    recorded = here.history.client("lost-0123abcd-0-0", transactional_id="lost-0123abcd-0-0")
    recorded.begin()
    recorded.send(flow.target, "1#never sent", 0).ok(offset=0)
    recorded.commit().ok()
    with pytest.raises(AssertionError, match="lost write"):
        here.assert_history_is_valid()
