"""A browser that goes away is noticed while its page is made."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

from fencepost.console.web.leaving import watching


def test_a_closed_connection_is_noticed_and_an_open_one_is_not() -> None:
    async def run() -> None:
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        request = Request({"type": "http", "method": "GET", "headers": []}, messages.get)
        async with watching(request) as is_gone:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not is_gone()
            messages.put_nowait({"type": "http.disconnect"})
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert is_gone()
        before = len(asyncio.all_tasks())
        async with watching(request):
            pass
        assert len(asyncio.all_tasks()) == before

    asyncio.run(run())
