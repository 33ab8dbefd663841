"""The type checker's daemon: started if there is none, restarted if it is broken, and not waited for without end."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

IDLE_S = 3 * 3600
"""After so long without a question the daemon ends."""
WITHOUT_ALL_PACKAGES = (
    "--ignore-missing-imports",
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
    "--no-warn-return-any",
    "--no-warn-unused-ignores",
    "--no-warn-unreachable",
    "--allow-untyped-calls",
)
"""What packages that are missing have typed is Any here. These options allow what would be errors for that alone."""


class Types:
    """One question to the daemon of a checkout, which is answered beside other work."""

    def __init__(self, dmypy: Path, root: Path, *, has_all_packages: bool) -> None:
        self._dmypy = dmypy
        self._root = root
        self._options = () if has_all_packages else WITHOUT_ALL_PACKAGES
        self.output = ""
        """What the daemon has printed, once `wait` has its answer."""
        self._was_restarted = False
        self._ask()

    def _ask(self) -> None:
        self._printed = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it lives as long as the process that writes it
        self._process = subprocess.Popen(
            [str(self._dmypy), "run", "--timeout", str(IDLE_S), "--", *self._options],
            cwd=self._root,
            stdout=self._printed,
            stderr=subprocess.STDOUT,
        )

    def wait(self, timeout_s: float) -> bool | None:
        """Whether the types are right, or None if there is no answer within the time; the daemon goes on then."""
        with self._printed:
            try:
                status = self._process.wait(max(timeout_s, 0.0))
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                return None
            self._printed.seek(0)
            self.output = self._printed.read()
        if is_broken(status, self.output) and not self._was_restarted:
            self._was_restarted = True
            subprocess.run([str(self._dmypy), "kill"], cwd=self._root, capture_output=True, check=False)
            self._ask()
            return self.wait(timeout_s)
        return status == 0


def errors_in(output: str, is_known: Callable[[str], bool]) -> list[str]:
    """The lines about errors in files whose types are known; is_known: whether those of a file are."""
    return [
        line for line in output.splitlines() if is_known(line.partition(":")[0]) and re.search(r":\d+: \w+: ", line)
    ]


def is_broken(status: int, output: str) -> bool:
    """Whether the daemon failed, in place of finding errors, which have a line each, syntax errors too."""
    return status not in (0, 1) and ": error:" not in output
