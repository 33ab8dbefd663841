"""Entry point of the `fencepost` command. It starts `serve` without click, which saves 1 MB of memory.

Only documented options are parsed here; click handles everything else: `--help`, other commands, mistakes.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from fencepost.broker.kernel.lean_imports import import_dataclasses, import_libraries
from fencepost.broker.process.interrupts import EXIT_INTERRUPTED, end_silently, raise_again

LOG_FORMATS: Final = ("human", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

# For the import of `serve`, which makes a hundred thousand objects that stay: often enough to free the classes that
# were replaced by ones with slots, seldom enough to take little time.
IMPORT_COLLECTION_THRESHOLD = 20_000

# These make click do something else, or add an option.
_VARIABLES_OF_CLICK = ("_FENCEPOST_COMPLETE", "FENCEPOST_CONFIG")


class ServeOptions(NamedTuple):
    """The options of `fencepost serve`, in the order in which the function takes them."""

    listeners: tuple[str, ...] = ()
    data_dir: str | None = None
    properties_path: str | None = None
    assignments: tuple[str, ...] = ()
    log_format: str | None = None
    log_level: str | None = None


_SINGLE: Final = {
    "--data-dir": "data_dir",
    "--config": "properties_path",
    "--log-format": "log_format",
    "--log-level": "log_level",
}
_REPEATED: Final = {"--listener": "listeners", "--set": "assignments"}


def parse_serve_options(arguments: Sequence[str], environment: Mapping[str, str]) -> ServeOptions | None:
    """Parse the arguments of `fencepost serve` as click would; None if only click can."""
    if arguments[:1] != ["serve"] or any(name in environment for name in _VARIABLES_OF_CLICK):
        return None
    single: dict[str, str] = {}
    repeated: dict[str, tuple[str, ...]] = {}
    left = list(reversed(arguments[1:]))
    while left:
        option, has_value, value = left.pop().partition("=")
        if not has_value:
            value = left.pop() if left else ""
        if not value or value.startswith("-"):
            return None
        if option in _REPEATED:
            name = _REPEATED[option]
            repeated[name] = (*repeated.get(name, ()), value)
        elif option in _SINGLE and _SINGLE[option] not in single:
            single[_SINGLE[option]] = value
        else:
            return None
    options = ServeOptions(**single, **repeated)  # type: ignore[arg-type]  # each dictionary has names of its own type
    if options.log_format not in (None, *LOG_FORMATS) or options.log_level not in (None, *LOG_LEVELS):
        return None
    return options


def main() -> None:
    """Entry point of the console script and of `python -m fencepost`."""
    try:
        _run()
    finally:
        # Python remembers an interrupt that came during an `exec`, such as of a codec's code, until the next `exec`:
        # it would end by SIGINT instead of with its exit code.
        exec("")


def _run() -> None:
    end_silently()
    options = parse_serve_options(sys.argv[1:], os.environ)
    if options is None:
        from fencepost.cli.commands import run

        run()
        return
    try:
        gc.set_threshold(IMPORT_COLLECTION_THRESHOLD, 1_000, 1_000)
        import_dataclasses()
        from fencepost.broker.process.serve_settings import load, needs_tls

        loaded = load(*options)
        if loaded.settings.fencepost_processes:
            from fencepost.broker.process.processes import serve_processes

            serve_processes(loaded, options)
            return
        import_libraries(with_openssl=needs_tls(loaded.settings))
        from fencepost.broker.process.serve import serve

        raise_again()
        serve(loaded)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (EOFError, OSError) as error:
        _end_by_click(error)


def _end_by_click(error: BaseException) -> NoReturn:
    """Let click end a command whose input or output was closed."""
    import click

    from fencepost.cli.closed_output import quiet_if_output_is_closed

    def fail() -> None:
        with quiet_if_output_is_closed():
            raise error

    click.Command("fencepost", callback=fail).main(args=[])


if __name__ == "__main__":
    main()
