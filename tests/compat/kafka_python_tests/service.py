"""What kafka-python's test fixtures import and its source distribution leaves out."""

from __future__ import annotations

import sys
import types


class ExternalService:
    """A Kafka that runs already, at an address that the fixtures know."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def stop(self) -> None:
        """It is not ours to stop."""


class SpawnedService:
    """A Kafka that a fixture starts by itself; there is none to start here."""

    def __init__(self, *_arguments: object) -> None:
        raise RuntimeError("a test that starts a Kafka of its own cannot be run")


def stand_in_for_their_packages(sources: str) -> None:
    """Have `test` be the folder of the distribution, and not Python's own package; `test.service` is this module."""
    package = types.ModuleType("test")
    package.__path__ = [f"{sources}/test"]
    sys.modules["test"] = package
    sys.modules["test.service"] = sys.modules[__name__]
