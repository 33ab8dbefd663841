"""Properties of a client as a file or options have them: `name=value`, each with the place where it was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Property(NamedTuple):
    """A property as it was written. place: where, as `client.properties:3`."""

    value: str
    place: str


Properties = Mapping[str, Property]


class WrongPropertiesError(Exception):
    """A wrong property: the message has the error, its place and the remedy, but no secret."""


def read_file(path: str) -> dict[str, Property]:
    """Read a file of properties. Raises WrongPropertiesError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise WrongPropertiesError(f"{path} cannot be read: {reason}") from None
    return properties_in(text, path)


def properties_in(text: str, where: str) -> dict[str, Property]:
    """The properties of a text. where: the name of its file, for the place of each."""
    from fencepost.broker.config.loading import parse_properties

    return {name: Property(value, f"{where}:{line}") for name, value, line in parse_properties(text)}


def secret(properties: Properties, name: str) -> str | None:
    """Return a property that may be a secret; `${file:/path}` and `${env:NAME}` are replaced by their content."""
    found = properties.get(name)
    if found is None:
        return None
    from fencepost.broker.config.password import Password

    try:
        return Password(found.value).reveal()
    except ValueError as error:
        raise WrongPropertiesError(f"{found.place}: {name}: {error}") from None
