"""Settings that a test gives to its broker: those that cannot be are refused before it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fencepost.broker.config import ConfigurationError, Entry, load_settings
from fencepost.testing.arguments import text_of
from fencepost.testing.http.hosts import host_name, is_loopback
from fencepost.testing.http.kinds import InputError

OF_THE_PROGRAM: Final = frozenset({"log.dir", "log.dirs"})
WITH_ADDRESSES: Final = ("listeners", "advertised.listeners", "fencepost.http.listener")
WITH_PARTITIONS: Final = (
    "num.partitions",
    "offsets.topic.num.partitions",
    "transaction.state.log.num.partitions",
    "share.coordinator.state.topic.num.partitions",
)
MOST_PARTITIONS: Final = 1_000
"""Of one topic. With a million, a broker would take hours and all memory to start, and the program could not end."""
ORIGIN: Final = "settings"


def check_settings(settings: Mapping[str, object], *, in_process: bool) -> None:
    """Raises InputError for a setting that does not exist, is the program's own, or opens the broker to other machines.

    in_process: whether the broker gets a process of its own, which has one listener.
    """
    if OF_THE_PROGRAM & settings.keys():
        raise InputError("settings has log.dirs, but data are temporary here: leave it out, and close with keep=true")
    if in_process and "listeners" in settings:
        raise InputError("settings has listeners, but a broker with process=true has its own: leave one of them out")
    texts = {name: text_of(value) for name, value in settings.items()}
    for name in WITH_ADDRESSES:
        for host in hosts_in(texts.get(name, "")):
            if not is_loopback(host):
                raise InputError(f"settings has {name} at {host!r}, which other machines reach: give 127.0.0.1 or ::1")
    try:
        loaded = load_settings(options=[Entry(name, text, ORIGIN) for name, text in texts.items()])
    except ConfigurationError as error:
        raise InputError(str(error)) from None
    for name in WITH_PARTITIONS:
        if getattr(loaded.settings, name.replace(".", "_")) > MOST_PARTITIONS:
            raise InputError(f"settings has {name} {texts[name]}: give {MOST_PARTITIONS:,} at most")


def hosts_in(text: str) -> list[str]:
    """The hosts of `NAME://host:port,…`, or of `host:port`."""
    addresses = [address.strip() for address in text.split(",") if address.strip()]
    return [host_name(re.sub(r"^[^:/]*://", "", address)) for address in addresses]
