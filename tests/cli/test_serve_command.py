"""The options of `fencepost serve` that are read without click: always what click would have read, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.kernel.logging import LEVELS
from fencepost.cli.commands import fencepost
from fencepost.cli.main import LOG_FORMATS, LOG_LEVELS, ServeOptions, parse_serve_options
from fencepost.cli.serve_command import serve

OPTIONS = ["--listener", "--data-dir", "--config", "--set", "--log-format", "--log-level", "--help", "-h", "--", "--l"]
VALUES = ["127.0.0.1:0", "data", "", "a=b", "-", "-x", "--set", "json", "human", "debug", "WARNING", "two words", "ü"]
arguments = st.lists(
    st.one_of(
        st.sampled_from(OPTIONS),
        st.sampled_from(VALUES),
        st.builds("{}={}".format, st.sampled_from(OPTIONS), st.sampled_from(VALUES)),
    ),
    max_size=8,
)


def options_of_click(given: list[str]) -> ServeOptions:
    parameters = serve.make_context("serve", given, **fencepost.context_settings).params
    for only_click_reads in ("processes", "cluster", "objects"):
        assert parameters.pop(only_click_reads, None) is None
    return ServeOptions(**parameters)


@given(arguments)
def test_options_are_read_without_click_as_click_reads_them(arguments: list[str]) -> None:
    options = parse_serve_options(["serve", *arguments], {})
    if options is not None:
        assert options == options_of_click(arguments)


@given(
    st.lists(st.tuples(st.sampled_from(["--listener", "--set"]), st.sampled_from(["a:1", "b=2", "c"]))),
    st.dictionaries(st.sampled_from(["--data-dir", "--config"]), st.sampled_from(["d", "e f", "g=h"])),
    st.booleans(),
)
def test_correct_options_are_read_without_click(
    repeated: list[tuple[str, str]], single: dict[str, str], with_equals_sign: bool
) -> None:
    pairs = [*repeated, *single.items(), ("--log-format", "json"), ("--log-level", "debug")]
    given = (
        [f"{option}={value}" for option, value in pairs]
        if with_equals_sign
        else [part for pair in pairs for part in pair]
    )
    options = parse_serve_options(["serve", *given], {})
    assert options is not None
    assert options == options_of_click(given)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["ping"],
        ["--help"],
        ["serve", "--help"],
        ["serve", "--listener"],
        ["serve", "--log-format", "xml"],
        ["serve", "--log-level", "loud"],
        ["serve", "--data-dir", "a", "--data-dir", "b"],
        ["serve", "data"],
    ],
    ids=" ".join,
)
def test_help_and_mistakes_are_left_to_click(arguments: list[str]) -> None:
    assert parse_serve_options(arguments, {}) is None


@pytest.mark.parametrize("name", ["FENCEPOST_CONFIG", "_FENCEPOST_COMPLETE"])
def test_what_click_takes_from_the_environment_is_left_to_click(name: str) -> None:
    assert parse_serve_options(["serve"], {}) == ServeOptions()
    assert parse_serve_options(["serve"], {name: "x"}) is None


def test_the_choices_are_those_of_the_command() -> None:
    choices = {
        option.name: tuple(option.type.choices) for option in serve.params if isinstance(option.type, click.Choice)
    }
    assert choices == {"log_format": LOG_FORMATS, "log_level": LOG_LEVELS}
    assert tuple(LEVELS) == LOG_LEVELS


@pytest.mark.parametrize(
    ("error", "is_read", "exit_code", "words"),
    [
        ("KeyboardInterrupt()", True, 130, ""),
        ("BrokenPipeError(errno.EPIPE, 'nobody reads')", False, 141, ""),
        ("BrokenPipeError(errno.EPIPE, 'gone')", True, 1, "Error: a connection was closed: gone\n"),
    ],
    ids=["Ctrl-C", "closed pipe", "broken connection"],
)
def test_a_start_that_is_interrupted_ends_as_every_command_does(
    error: str, is_read: bool, exit_code: int, words: str
) -> None:
    reader, writer = os.pipe()
    if not is_read:
        os.close(reader)
    program = f"""
import errno, sys, fencepost.cli.main
import fencepost.broker.process.serve
def serve(*options): raise {error}
fencepost.broker.process.serve.serve = serve
sys.argv = ["fencepost", "serve"]
fencepost.cli.main.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=20, check=False
    )
    os.close(writer)
    if is_read:
        os.close(reader)
    assert (ended.returncode, ended.stderr) == (exit_code, words)
