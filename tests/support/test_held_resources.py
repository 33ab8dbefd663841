"""`held` names what has begun, whatever has ended meanwhile."""

from __future__ import annotations

import os
import threading

from tests.support.held_resources import held


def test_newly_held_resources_are_named_even_if_as_many_have_ended() -> None:
    end, more = threading.Event(), threading.Event()
    first = threading.Thread(target=end.wait, name="first")
    first.start()
    read, write = os.pipe()
    before = held()
    assert before.more_than(before) == []
    second = threading.Thread(target=more.wait, name="second")
    second.start()
    end.set()
    first.join()
    os.close(read)
    os.close(write)
    opened = os.open(os.devnull, os.O_RDONLY)
    try:
        assert held().more_than(before) == [f"{opened}: /dev/null", "second"]
    finally:
        more.set()
        second.join()
        os.close(opened)
    assert held().more_than(before) == []
