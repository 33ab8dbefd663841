"""Unexpected exceptions where states of records are kept by another node: nobody waits for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.share import remote_persister, state_requests
from fencepost.protocol.errors import ErrorCode
from tests.broker.supervision.planting import logged, plants, raising, unforeseen
from tests.support.remote_share_state import KEY, RemoteState, written


@plants(remote_persister.WRITING)
@unforeseen
async def test_a_write_that_fails_is_refused_and_the_next_one_is_sent(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = RemoteState(tmp_path)
    await world.open()
    with monkeypatch.context() as patch, logged(remote_persister.WRITING):
        patch.setattr(remote_persister, "WriteShareStatePartition", raising(error))
        world.write(0)
        assert await world.persister.durable(KEY) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.lost == [KEY]
    world.write(0)
    (await world.sent()).answer(written())
    assert await world.persister.durable(KEY) is ErrorCode.NONE
    await world.close()


@plants(state_requests.STATE_REQUEST)
@unforeseen
async def test_a_request_that_fails_is_repeated(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = RemoteState(tmp_path)
    await world.open()
    request = world.peers.request
    with logged(state_requests.STATE_REQUEST, "node 2"):
        monkeypatch.setattr(world.peers, "request", raising(error, times=1, then=request))
        world.write(0)
        (await world.sent()).answer(written())
        assert await world.persister.durable(KEY) is ErrorCode.NONE
    await world.close()
