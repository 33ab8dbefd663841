"""Every line of the broker's log that says a partition is not served names the commands that help."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fencepost.broker

OFFLINE_EVENTS = {
    "coordinator_partition_offline",
    "log_damaged",
    "partition_lost",
    "partition_not_opened",
    "partition_went_offline",
}
WAYS = {"remedy_offline_partition", "remedy_unreadable_records", "remedy_partition_went_offline"}


def offline_lines() -> Iterator[tuple[str, str, set[str]]]:
    """File and event of each such line, and the functions that are called for it."""
    root = Path(fencepost.broker.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            event = node.args[0]
            if isinstance(event, ast.Constant) and event.value in OFFLINE_EVENTS:
                called = {
                    inner.func.id
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
                }
                yield str(path.relative_to(root)), str(event.value), called


def test_every_offline_line_names_verify_and_repair() -> None:
    lines = list(offline_lines())
    assert {event for _, event, _ in lines} == OFFLINE_EVENTS
    assert [line for line in lines if not line[2] & WAYS] == []


def test_the_commands_that_they_name_are_those_there_are() -> None:
    from fencepost.broker.log.files.remedies import (
        remedy_offline_partition,
        remedy_partition_went_offline,
        remedy_unreadable_records,
    )
    from fencepost.cli.commands import fencepost
    from fencepost.cli.log import log

    for text in (
        remedy_offline_partition("/data/a-0"),
        remedy_partition_went_offline("/data/a-0"),
        remedy_unreadable_records("/data/a-0"),
    ):
        assert "`fencepost log verify --data-dir /data a-0`" in text
        assert "`fencepost log repair --data-dir /data a-0`" in text
        assert "`--accept-loss`" in text
    for command, arguments in (("verify", []), ("repair", ["--accept-loss"])):
        parsed = log.commands[command].make_context(
            command, ["--data-dir", "/data", "a-0", *arguments], **fencepost.context_settings
        )
        assert parsed.params["partitions"] == ("a-0",)
