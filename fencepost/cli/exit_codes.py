"""The exit codes of the `fencepost` command: a promise to scripts. docs/exit-codes.md is generated from this table."""

from __future__ import annotations

import signal
from typing import Final, NamedTuple

from fencepost.broker.process.interrupts import EXIT_AFTER_SIGNAL, EXIT_INTERRUPTED

DONE: Final = 0
NOT_DONE: Final = 1
WRONG_USAGE: Final = 2
BROKER_FAILED: Final = 3
INTERRUPTED: Final = EXIT_INTERRUPTED
OUTPUT_CLOSED: Final = EXIT_AFTER_SIGNAL + signal.SIGPIPE
TERMINATED: Final = EXIT_AFTER_SIGNAL + signal.SIGTERM


class ExitCode(NamedTuple):
    """A code and its meaning. examples: calls that end with it, for people."""

    code: int
    meaning: str
    examples: tuple[str, ...]


EXIT_CODES: Final = (
    ExitCode(
        DONE,
        "Done. A service that runs until it is stopped (`serve`, `console`, `cluster try`, `check-back`, `spark finish "
        "--every`, `test-broker`) ends with it at Ctrl-C and at SIGTERM, too.",
        ("fencepost version", "fencepost topics list", "fencepost serve, then Ctrl-C"),
    ),
    ExitCode(
        NOT_DONE,
        "Not done, or not all of it: the message on standard error says why, and the remedy. Also the result of a "
        "check that has found something (`log verify`, `cluster check`, `history check`, `two-phase compare`, `soak`), "
        "and the answer *no* to a question.",
        ("fencepost topics describe no-such-topic", "fencepost ping, and nothing serves"),
    ),
    ExitCode(
        WRONG_USAGE,
        "The options, the settings or the profile are wrong, or a question cannot be asked as there is no terminal. "
        "Nothing was tried.",
        ("fencepost topics list --no-such-option", "fencepost topics delete orders < /dev/null"),
    ),
    ExitCode(
        BROKER_FAILED,
        "`serve` was stopped by an unexpected exception, which its last lines report. Start it again: it recovers.",
        (),
    ),
    ExitCode(
        INTERRUPTED,
        "Stopped with Ctrl-C. `produce` has written the lines that it had read, or aborted its transaction, and like "
        "`consume` says how many records that were.",
        ("fencepost consume orders, then Ctrl-C",),
    ),
    ExitCode(
        OUTPUT_CLOSED,
        "The reader of standard output has gone, as `head` does: the rest was not written, and nothing is said.",
        ("fencepost topics list | head -1, of a long list",),
    ),
    ExitCode(
        TERMINATED,
        "Stopped with SIGTERM, as for Ctrl-C: `produce`, `consume` and `soak`. Any other command ends at once, which a "
        "shell reports by the same number.",
        (),
    ),
)
"""In the order of the codes. A shell reports a process that a signal has ended as 128 and the signal's number."""
