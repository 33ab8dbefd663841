"""Ctrl-C while the program only imports: it ends the process at once, without a word.

Python would print a traceback of the import. Once a command runs, Ctrl-C raises KeyboardInterrupt again.
"""

from __future__ import annotations

import signal

EXIT_AFTER_SIGNAL = 128
"""As a shell reports a program that a signal has ended."""
EXIT_INTERRUPTED = EXIT_AFTER_SIGNAL + signal.SIGINT


def end_silently() -> None:
    """Let Ctrl-C end the process. A process that ignores Ctrl-C, as one in the background, still ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """Undo `end_silently`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
