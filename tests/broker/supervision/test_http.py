"""The HTTP listener meets what nobody foresaw: one connection ends, and all others are served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import h11
import pytest

from fencepost.broker.http import connection
from fencepost.broker.http.connection import HttpConnection
from fencepost.broker.metrics import loop_delay
from fencepost.broker.metrics.loop_delay import LoopDelay
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.http_node import http_node, raw_http

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@plants(connection.HTTP_SERVING, connection.HTTP_ANSWER)
@unforeseen
@pytest.mark.parametrize(
    ("owner", "step", "place"),
    [
        (h11.Connection, "next_event", connection.HTTP_SERVING),
        (HttpConnection, "_send_response", connection.HTTP_ANSWER),
    ],
)
async def test_a_failure_in_an_http_connection_closes_it_and_no_other(
    error: BaseException, owner: Any, step: str, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with http_node(tmp_path) as http, raw_http(http.node) as broken:
        with logged(place, "127.0.0.1"), monkeypatch.context() as planted:
            planted.setattr(owner, step, raising(error))
            broken.send(GET)
            assert await broken.is_closed()
        async with raw_http(http.node) as sound:
            sound.send(GET)
            assert (await sound.response())[0] == 200


@plants(loop_delay.LOOP_DELAY)
@unforeseen
async def test_a_failure_in_the_look_at_the_loop_is_followed_by_the_next_look(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_delay, "INTERVAL_S", 0.001)
    monkeypatch.setattr(loop_delay, "SAMPLES_COUNT", 1)
    minutes: list[int] = []
    delay = LoopDelay(asyncio.get_running_loop(), raising(error, times=1, then=lambda: minutes.append(1)))
    with logged(loop_delay.LOOP_DELAY):
        delay.start()
        await until(lambda: minutes)
    delay.close()
