"""Work on threads of its own."""

from __future__ import annotations

import threading

import pytest

from fencepost.broker.kernel.threads import on_a_thread


async def test_the_work_runs_beside_the_event_loop_and_its_result_comes_back() -> None:
    assert await on_a_thread(threading.get_ident) != threading.get_ident()


async def test_an_error_of_the_work_comes_back() -> None:
    def fail() -> None:
        raise ZeroDivisionError("of the work")

    with pytest.raises(ZeroDivisionError, match="of the work"):
        await on_a_thread(fail)


async def test_without_a_thread_the_work_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await on_a_thread(threading.get_ident) == threading.get_ident()
