"""Fencepost: a broker that speaks the Kafka wire protocol, with Kafka's transactions at its heart.

`Broker` runs one inside this process on a thread, `AsyncBroker` on the event loop that runs. The broker's modules are
imported at the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.in_process import Broker
    from fencepost.testing.loop_broker import AsyncBroker

    __version__: str

__all__ = ["AsyncBroker", "Broker", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from fencepost.in_process import Broker

        return Broker
    if name == "AsyncBroker":
        from fencepost.testing.loop_broker import AsyncBroker

        return AsyncBroker
    if name == "__version__":
        from importlib.metadata import version

        return version("fencepost")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
