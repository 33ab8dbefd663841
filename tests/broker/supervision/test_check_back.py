"""The check-back meets what nobody foresaw: it begins again with what it has recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.check_back_host import service
from fencepost.broker.check_back_host.own_transactions import OwnTransactions
from fencepost.broker.check_back_host.service import CHECK_BACK, RESTART, BrokerCheckBack
from fencepost.broker.kernel import supervision
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.check_back.question import Answer
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.check_back_broker import ScriptedSource, begin, core_of, running_check_back
from tests.support.fake_peers import FakePeers


@plants(CHECK_BACK)
@unforeseen
@pytest.mark.parametrize("place", ["all_open", "end"])
async def test_a_check_back_that_fails_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, place: str
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    source = ScriptedSource()
    source.answer = Answer.COMMIT
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        with logged(CHECK_BACK):
            monkeypatch.setattr(OwnTransactions, place, raising(error, 1, getattr(OwnTransactions, place)))
            await begin(node, "order-1")
            check_back = core_of(node)
            await until(lambda: check_back.figures.decisions and not check_back.schedule.cases)
        assert len(source.asked) == 1


@plants(RESTART)
@unforeseen
async def test_a_check_back_whose_restart_fails_is_restarted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(service, "PAUSE_AFTER_CHANGES_S", 0.01)
    source = ScriptedSource()
    source.answer = Answer.COMMIT
    async with running_check_back(tmp_path, source, monkeypatch) as node:
        services = node.services
        one_of_several = BrokerCheckBack(
            node.settings, services.topics, services.transactions, services.clock, peers=FakePeers()
        )
        one_of_several.start()
        first = one_of_several._task
        assert first is not None
        with logged(RESTART):
            monkeypatch.setattr(one_of_several, "_begin", raising(error, 1, one_of_several._begin))
            one_of_several._resigned(TopicPartition(TRANSACTION_STATE_TOPIC, 0))
            await until(lambda: one_of_several._task is not None)
        assert first.cancelled()
        await one_of_several.close()
