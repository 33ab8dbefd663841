"""Client processes of the soak: one runs in every slot; their counters, their restarts, the end of hanging ones."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from fencepost.soak.client_process import ClientProcess, Surroundings, is_known
from fencepost.soak.plan import ExitCode, Slot

RESTART_DELAY_S = 0.5
HANGING_AFTER_S = 30.0  # without a single completed call, while neither it nor the broker was disturbed


class Post:
    """A slot and its process. While it `is_held`, only the nemesis starts and ends the process."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.process: ClientProcess | None = None
        self.lives = 0
        self.is_held = False  # reserved by the nemesis
        self.starts_at_s: float | None = 0.0  # when `look` starts the next process; None: never
        self.committed_at_s = 0.0
        self.commits_seen = 0  # of the current process


class Crew:
    """The client processes of all slots. The caller must call `look` regularly: nothing happens in between.

    lives: number of processes that each slot has had in earlier soaks, by its name.
    """

    def __init__(self, surroundings: Surroundings, lives: Mapping[str, int] = MappingProxyType({})) -> None:
        self.plan = surroundings.plan
        self.posts = {slot: Post(slot) for slot in surroundings.plan.slots()}
        for slot, post in self.posts.items():
            post.lives = lives.get(slot.name, 0)
        self.ends: Counter[str] = Counter()  # ends of sessions without a signal, by reason
        self.failures: list[str] = []  # unexpected ends
        self.hung: list[str] = []
        self._surroundings = surroundings
        self._past: Counter[str] = Counter()  # counters of ended processes

    def look(self, *, watch_hanging: bool = True) -> None:
        """Start due processes, record ends and commits. watch_hanging: end processes that hang."""
        now_s = time.monotonic()
        for post in self.posts.values():
            process = post.process
            if process is None:
                if post.starts_at_s is not None and now_s >= post.starts_at_s:
                    self.start(post)
                continue
            if process.committed > post.commits_seen:
                post.commits_seen = process.committed
                post.committed_at_s = now_s
            if process.exit_code is not None:
                self._note_end(process)
                self.retire(post)
                post.starts_at_s = now_s + RESTART_DELAY_S
            elif watch_hanging and not process.is_frozen and now_s - process.moved_at_s > HANGING_AFTER_S:
                self._end_hanging(post, process)

    def start(self, post: Post) -> ClientProcess:
        """Start a new process in the slot; the former one must have been retired."""
        post.lives += 1
        post.process = ClientProcess(self._surroundings, post.slot, post.lives)
        post.commits_seen = 0
        post.starts_at_s = None
        return post.process

    def kill(self, post: Post) -> None:
        """Send SIGKILL; the slot stays empty until `starts_at_s` is set."""
        if post.process is not None:
            post.process.kill()
            self.retire(post)

    def detach(self, post: Post) -> ClientProcess:
        """Take the process out of its slot without ending it; the caller must pass it to `bury` later."""
        assert post.process is not None
        process, post.process = post.process, None
        return process

    def bury(self, process: ClientProcess) -> None:
        """End a detached process, if it still runs, and add its counters to the totals."""
        process.kill()
        self._count(process)

    def retire(self, post: Post) -> None:
        """End the process in the slot, if it still runs, and add its counters to the totals."""
        assert post.process is not None
        post.process.kill()
        self._count(post.process)
        post.process, post.starts_at_s = None, None

    def total(self, name: str) -> int:
        """Sum of one counter over all processes; killed ones may lack up to the last half second."""
        present = [post.process for post in self.posts.values() if post.process is not None]
        return self._past[name] + sum(int(getattr(process, name)) for process in present)

    def idle_since(self, moment_s: float) -> list[Slot]:
        """Transactional slots without a commit since then."""
        return [slot for slot, post in self.posts.items() if slot.is_transactional and post.committed_at_s <= moment_s]

    def stop(self, timeout_s: float) -> None:
        """Stop all processes, and kill those that run after the time-out."""
        for post in self.posts.values():
            post.starts_at_s = None
            if post.process is not None:
                if post.process.is_frozen:
                    post.process.thaw()
                post.process.terminate()
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and any(
            post.process is not None and post.process.exit_code is None for post in self.posts.values()
        ):
            time.sleep(0.05)
        self.kill_all()

    def kill_all(self) -> None:
        for post in self.posts.values():
            self.kill(post)

    def _note_end(self, process: ClientProcess) -> None:
        exit_code = process.exit_code
        assert exit_code is not None
        if is_known(exit_code):
            self.ends[ExitCode(exit_code).name.lower()] += 1
        else:
            self.ends["failed"] += 1
            self.failures.append(f"{process.name} ended with {exit_code}: {process.reason or 'see its log'}")

    def _end_hanging(self, post: Post, process: ClientProcess) -> None:
        process.dump_threads()
        time.sleep(0.5)
        self.hung.append(process.name)
        self.kill(post)
        post.starts_at_s = time.monotonic() + RESTART_DELAY_S

    def _count(self, process: ClientProcess) -> None:
        for name in ("sent", "committed", "aborted", "unknown", "read", "steps"):
            self._past[name] += getattr(process, name)
