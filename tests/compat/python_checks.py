"""What a program of checks in Python is made of; it speaks with the harness as README.md beside this file says.

Only the standard library: programs run in environments of their own.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

# How long one check may take, a restarting broker and a busy machine included.
LIMIT_S = 180.0

# The timestamp that checks count from, in milliseconds since 1970: young enough that retention deletes nothing.
START_MS = int(time.time() * 1000) - 60_000

Value = TypeVar("Value")


class FailedError(AssertionError):
    """An expectation that does not hold; the message says which."""


class SkippedError(Exception):
    """The check cannot be made here; the message says why."""


class Check:
    """One check while it runs.

    bootstrap: the broker's HOST:PORT, or those of all its nodes with commas between.
    """

    _request_lock = threading.Lock()
    _writing = threading.Lock()

    def __init__(self, check: str, run: str, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.facts: dict[str, Any] = {}
        self._check = check
        self._run = run
        self._deadline = time.monotonic() + LIMIT_S

    @property
    def addresses(self) -> list[str]:
        """HOST:PORT of each of the broker's nodes, by their ids, which count from 1."""
        return self.bootstrap.split(",")

    def name(self, kind: str) -> str:
        """A name that no other check and no other run uses."""
        return f"{kind}-{self._check}-{self._run}"

    def equal(self, what: str, got: object, want: object) -> None:
        """End the check unless both are equal."""
        if got != want:
            raise FailedError(f"{what}: got {got!r}, want {want!r}")

    def comes_to(self, what: str, get: Callable[[], object], want: object) -> None:
        """Ask again until the answer is the one that is wanted; end the check when that takes too long."""
        got = get()
        for _ in self.patience():
            if got == want:
                return
            time.sleep(0.02)
            got = get()
        self.equal(what, got, want)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Ask again until the condition holds; end the check when that takes too long."""
        for _ in self.turns(what):
            if holds():
                return
            time.sleep(0.02)

    def patience(self) -> Iterator[None]:
        """An iterator that ends when a condition has had its time."""
        deadline = min(self._deadline, time.monotonic() + LIMIT_S / 2)
        while time.monotonic() < deadline:
            yield

    def turns(self, what: str) -> Iterator[None]:
        """An iterator to be left with `break` or `return`; it ends the check when `what` takes too long."""
        yield from self.patience()
        raise FailedError(f"{what}: did not come about")

    def fact(self, name: str, value: object) -> None:
        """Record what was seen, to be compared with what the same check sees of another broker."""
        self.facts[name] = value

    def restart(self, how: str) -> None:
        """End the broker, with SIGKILL ("kill") or SIGTERM ("terminate"), and start it again on its data.

        Returns when the broker is ready; may be called in any thread. Raises SkippedError when nobody can do that.
        """
        answer = self._answer(how)
        if answer != "done":
            raise SkippedError(answer or "nobody restarts brokers here")

    def ask(self, what: str) -> None:
        """Have the harness make a topic or change a right, and wait for it; README.md has the words."""
        answer = self._answer(what)
        self.equal(f"answer to {what!r}", answer, "done")

    def known(self, topic: str, partitions: int = 1) -> None:
        """Wait until every node knows a topic with its partitions, which they learn one after the other."""
        if len(self.addresses) > 1:
            self.ask(f"known {topic} {partitions}")

    def _answer(self, what: str) -> str:
        with self._request_lock:
            self.say({"ask": what})
            return sys.stdin.readline().strip()

    @classmethod
    def say(cls, line: Mapping[str, object]) -> None:
        with cls._writing:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


class Thread:
    """A function in its own thread, whose exception comes out where it is joined."""

    def __init__(self, function: Callable[[], Value]) -> None:
        self._function = function
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as failure:  # noqa: BLE001 - raised again by join
            self._failure = failure

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for the end; raises what the function raised."""
        self._thread.join(LIMIT_S)
        if self._thread.is_alive():
            raise FailedError(f"{self._function} did not end")
        if self._failure is not None:
            raise self._failure


def together(functions: Sequence[Callable[[], object]]) -> None:
    """All of them at once, each in a thread; raises what the first of them raised that failed."""
    for thread in [Thread(function) for function in functions]:
        thread.join()


def main(checks: Sequence[Callable[[Check], None]], secured: Sequence[Callable[[Check], None]] = ()) -> NoReturn:
    """Run the program: BOOTSTRAP RUN [CHECK...]. A check's name is its function's, with dashes.

    secured: the checks of a secured broker, which are made in place of the others if there is one.
    """
    checks = secured if "SECURED_FILES" in os.environ else checks
    named = {check.__name__.replace("_", "-"): check for check in checks}
    if len(sys.argv) < 3 or not set(sys.argv[3:]) <= set(named):
        sys.exit(f"usage: PROGRAM BOOTSTRAP RUN [CHECK...], with checks among: {', '.join(named)}")
    for name, function in named.items():
        if name in sys.argv[3:] or not sys.argv[3:]:
            Check.say(_report(name, function))
    # Threads that a failed check left behind do not keep the program.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _report(name: str, function: Callable[[Check], None]) -> dict[str, object]:
    check = Check(name, sys.argv[2], sys.argv[1])
    ended: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def run() -> None:
        try:
            function(check)
        except SkippedError as reason:
            ended.put(("skipped", str(reason)))
        except FailedError as reason:
            line = traceback.extract_tb(reason.__traceback__)
            ended.put(("failed", f"{reason} (line {[entry.lineno for entry in line]})"))
        except BaseException:  # noqa: BLE001 - whatever it is, the check has failed
            ended.put(("failed", traceback.format_exc()))
        else:
            ended.put(("passed", ""))

    started = time.monotonic()
    threading.Thread(target=run, daemon=True).start()
    try:
        outcome, detail = ended.get(timeout=LIMIT_S + 5)
    except queue.Empty:
        outcome, detail = "failed", "the check did not end in time"
    seconds = round(time.monotonic() - started, 3)
    return {"check": name, "outcome": outcome, "seconds": seconds, "detail": detail, "facts": check.facts}
