"""Remedies for log lines: actions of the operator on damage in a partition's directory."""

from __future__ import annotations


def remedy_offline_partition(directory: str) -> str:
    """The remedy for a partition that is offline."""
    return f"The partition is offline, and its files are as they were. {_commands(directory)}"


def remedy_unreadable_records(directory: str) -> str:
    """The remedy if only some records cannot be read."""
    return f"Everything else is served. {_commands(directory)}"


def remedy_partition_went_offline(directory: str) -> str:
    """The remedy for a partition that went offline while served: a restart serves it again, unless its files are
    damaged."""
    return f"If it does not come back, its files are damaged. {_commands(directory)}"


def _commands(directory: str) -> str:
    data_directory, _, partition = directory.rpartition("/")
    arguments = f"--data-dir {data_directory} {partition}"
    return (
        f"Stop the broker; `fencepost log verify {arguments}` reports what is wrong and what each choice costs. "
        f"Restore the files from a backup, or have `fencepost log repair {arguments}` mend what can be mended "
        "without a loss, and, with `--accept-loss`, give up the rest"
    )
