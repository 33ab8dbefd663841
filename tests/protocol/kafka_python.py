"""kafka-python's message classes and the definitions that it ships, imported with its warnings kept quiet."""

from __future__ import annotations

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    from kafka.protocol.schemas.load_json import load_json

PACKAGES = (kafka.protocol.metadata, kafka.protocol.producer, kafka.protocol.consumer, kafka.protocol.admin)


def definition_of(message_name: str) -> dict[str, Any]:
    """Kafka's own definition of a message, with its fields and those of its structs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        definition: dict[str, Any] = load_json(message_name)
    return definition


def knows(message_name: str) -> bool:
    """Whether kafka-python has the message: it lacks the APIs of the newer group protocols, which only kio has."""
    return any(hasattr(package, message_name) for package in PACKAGES)


def message_class(message_name: str) -> Any:
    return next(found for package in PACKAGES if (found := getattr(package, message_name, None)))
