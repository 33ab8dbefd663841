"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses.

Source: KIP-546.
"""

from fencepost.protocol.schema import float64, int8, int16, int32, message, struct


@struct
class ComponentData:
    """A filter of entities. Entity types: `user`, `client-id`, `ip`.

    match_type: 0 the name in `match`, 1 the default, 2 any name.
    """

    entity_type: str = ""
    match_type: int8 = 0
    match: str | None = ""


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Ask for quotas; `strict` leaves out entities that have parts which are not named."""

    components: list[ComponentData] = []
    strict: bool = False


@struct
class EntityData:
    """A part of an entity; a name that is None stands for the default."""

    entity_type: str = ""
    entity_name: str | None = ""


@struct
class ValueData:
    """One quota.

    key: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, connection_creation_rate.
    """

    key: str = ""
    value: float64 = 0.0


@struct
class EntryData:
    """An entity and all its quotas."""

    entity: list[EntityData] = []
    values: list[ValueData] = []


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas; None with an error.

    Errors: INVALID_REQUEST, UNSUPPORTED_VERSION, CLUSTER_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = []


@struct
class OpData:
    """A quota that is set or removed."""

    key: str = ""
    value: float64 = 0.0
    remove: bool = False


@struct
class AlterEntryData:
    """An entity and the changes of its quotas."""

    entity: list[EntityData] = []
    ops: list[OpData] = []


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Change quotas, entity by entity."""

    entries: list[AlterEntryData] = []
    validate_only: bool = False


@struct
class AlteredEntryData:
    """Result of one entity.

    Errors: INVALID_REQUEST, UNSUPPORTED_VERSION, CLUSTER_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    error_message: str | None = ""
    entity: list[EntityData] = []


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """One result per entity."""

    throttle_time_ms: int32 = 0
    entries: list[AlteredEntryData] = []
