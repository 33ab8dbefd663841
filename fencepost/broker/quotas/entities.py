"""Entities that quotas apply to, the quotas there are, and the checks of a change. Pure.

Source: KIP-546; Kafka's ClientQuotaControlManager, QuotaConfig and ClientQuotasImage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple

from fencepost.broker.kernel.addresses import canonical_host
from fencepost.protocol.errors import ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = frozenset({USER, CLIENT_ID, IP})
DEFAULT = None
"""In place of a name: all without a quota of their own."""

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, sorted by type: `(("client-id", None), ("user", "alice"))`."""


class QuotaKey(StrEnum):
    """The quotas that can be set."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


_WHOLE_NUMBERS = {
    QuotaKey.PRODUCER_BYTE_RATE: ("LONG", 2**63 - 1),
    QuotaKey.CONSUMER_BYTE_RATE: ("LONG", 2**63 - 1),
    QuotaKey.CONNECTION_CREATION_RATE: ("INT", 2**31 - 1),
}
_KEYS = frozenset(key.value for key in QuotaKey)
_LARGEST_FRACTION = 0.01  # largest deviation from a whole number that still counts as one
_OF_ADDRESSES = frozenset({QuotaKey.CONNECTION_CREATION_RATE})


class QuotaRefusal(NamedTuple):
    """The reason to refuse a change or a filter."""

    error: ErrorCode
    message: str


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return an entity; of two parts of one type the last counts, as in Kafka. An address gets its canonical form."""
    return tuple(sorted((kind, _canonical(kind, name)) for kind, name in dict(parts).items()))


def _canonical(entity_type: str, name: str | None) -> str | None:
    return canonical_host(name) if entity_type == IP and name else name


def check_entity(entity: Entity) -> str | None:
    """Return why an entity can have no quotas (INVALID_REQUEST), in words, or None. Does not check that an address
    exists."""
    if not entity:
        return "Invalid empty client quota entity"
    for entity_type, name in entity:
        if entity_type not in ENTITY_TYPES:
            return f"Unhandled client quota entity type: {entity_type}"
        if name == "":
            return f"Empty {entity_type} not supported"
    if len(entity) > 1 and any(entity_type == IP for entity_type, _ in entity):
        return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
    return None


def check_quota(entity: Entity, key: str, value: float) -> str | None:
    """Return the reason why an entity cannot have this quota (INVALID_REQUEST), in words, or None."""
    is_address = entity[0][0] == IP
    if key not in _KEYS or (key in _OF_ADDRESSES) is not is_address:
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    whole = _WHOLE_NUMBERS.get(QuotaKey(key))
    if whole is not None:
        kind, largest = whole
        if value > largest:
            return f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}."
        if abs(value - round(value)) > _LARGEST_FRACTION:
            return f"{key} cannot be a fractional value."
    return None


class MatchType(IntEnum):
    """Kinds of match between a part of a filter and a name, with Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class FilterComponent(NamedTuple):
    """A part of a filter, as it was sent."""

    entity_type: str
    match_type: int
    match: str | None


class EntityFilter:
    """A filter of entities; all parts must match. strict: an entity has no other parts."""

    def __init__(self, components: Sequence[FilterComponent], *, strict: bool) -> None:
        self._names: dict[str, str | None] = {}
        self._types: set[str] = set()
        self._component_count = len(components)
        self._strict = strict
        for component in components:
            if component.match_type == MatchType.SPECIFIED:
                self._types.add(component.entity_type)
            else:
                self._names[component.entity_type] = _canonical(component.entity_type, component.match)

    def matches(self, entity: Entity) -> bool:
        if self._strict and len(entity) != self._component_count:
            return False
        parts = dict(entity)
        return all(parts.get(kind, "") == name for kind, name in self._names.items()) and parts.keys() >= self._types


def check_filter(components: Sequence[FilterComponent]) -> QuotaRefusal | None:
    """Return INVALID_REQUEST, UNSUPPORTED_VERSION for an unknown type of entity, or None for a valid filter."""
    seen: set[str] = set()
    for component in components:
        refusal = _check_component(component, seen)
        if refusal is not None:
            return refusal
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        return QuotaRefusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component.",
        )
    return None


def _check_component(component: FilterComponent, seen: set[str]) -> QuotaRefusal | None:
    kind, match_type, match = component
    if not kind:
        return QuotaRefusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
    if kind in seen:
        message = f"Entity type {kind} cannot appear more than once in the filter."
        return QuotaRefusal(ErrorCode.INVALID_REQUEST, message)
    if kind not in ENTITY_TYPES:
        return QuotaRefusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    message = ""
    if match_type == MatchType.EXACT:
        if match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif match_type not in (MatchType.DEFAULT, MatchType.SPECIFIED):
        message = f"Unknown match type {match_type}"
    elif match is not None:
        message = f"Request specified MATCH_TYPE_{MatchType(match_type).name}, but also specified a match string."
    return QuotaRefusal(ErrorCode.INVALID_REQUEST, message) if message else None


class QuotaLimit(NamedTuple):
    """A quota as it applies to one client. owner: the entity that shares it; a default is replaced by the client's
    own."""

    owner: Entity
    value: float


def limit_for(
    quotas: Mapping[Entity, Mapping[str, float]], key: QuotaKey, *, user: str, client_id: str
) -> QuotaLimit | None:
    """The most specific quota that is set for a client; None when it has none.

    A quota of a user is shared by all its clients, one of a client id by all clients with that id; a default applies to
    each by itself. Source: KIP-13, KIP-55; Kafka's DefaultQuotaCallback.quotaLimit.
    """
    both: Entity = ((CLIENT_ID, client_id), (USER, user))
    only_user: Entity = ((USER, user),)
    only_client: Entity = ((CLIENT_ID, client_id),)
    for entity, owner in (
        (both, both),
        (((CLIENT_ID, DEFAULT), (USER, user)), both),
        (only_user, only_user),
        (((CLIENT_ID, client_id), (USER, DEFAULT)), both),
        (((CLIENT_ID, DEFAULT), (USER, DEFAULT)), both),
        (((USER, DEFAULT),), only_user),
        (only_client, only_client),
        (((CLIENT_ID, DEFAULT),), only_client),
    ):
        value = quotas.get(entity, {}).get(key)
        if value is not None:
            return QuotaLimit(owner, value)
    return None
