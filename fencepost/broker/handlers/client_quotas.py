"""DescribeClientQuotas and AlterClientQuotas: quotas of users, client ids and addresses, changed at run time.

Source: KIP-546; Kafka's ClientQuotaControlManager and ClientQuotasImage.
"""

from __future__ import annotations

from typing import Any

from fencepost.broker.quotas.addresses import address_of
from fencepost.broker.quotas.entities import (
    IP,
    Entity,
    EntityFilter,
    FilterComponent,
    check_entity,
    check_filter,
    check_quota,
    entity_of,
)
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes
from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.rights.needed_rights import ALTER_CONFIGS, DESCRIBE_CONFIGS, cluster
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage
from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    AlterEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
    ValueData,
)


def _parts(entity: Entity) -> list[EntityData]:
    return [EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity]


# DescribeClientQuotas


def describe_client_quotas_failed(
    request: DescribeClientQuotasRequest, error: ErrorCode, version: int, message: str | None = None
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None)


@api(
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    versions="0-1",
    rights=NeededRights(cluster(DESCRIBE_CONFIGS)),
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED UNSUPPORTED_VERSION INVALID_REQUEST"),
    failed=describe_client_quotas_failed,
)
def handle_describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Describe the quotas of all entities that match every part of the filter.

    Refuses: INVALID_REQUEST, UNSUPPORTED_VERSION (an unknown type of entity).
    """
    components = [FilterComponent(part.entity_type, part.match_type, part.match) for part in request.components]
    refusal = check_filter(components)
    if refusal is not None:
        return describe_client_quotas_failed(request, refusal.error, context.api_version, refusal.message)
    wanted = EntityFilter(components, strict=request.strict)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            EntryData(
                entity=_parts(entity), values=[ValueData(key=key, value=value) for key, value in sorted(values.items())]
            )
            for entity, values in context.services.client_quotas.all.items()
            if wanted.matches(entity)
        ],
    )


# AlterClientQuotas


def alter_client_quotas_failed(
    request: AlterClientQuotasRequest, error: ErrorCode, version: int
) -> AlterClientQuotasResponse:
    """Every entity of the request fails with the same error."""
    return AlterClientQuotasResponse(
        entries=[
            AlteredEntryData(error_code=error, error_message=None, entity=entry.entity) for entry in request.entries
        ]
    )


def _entity(entry: Any) -> str:
    """An entity as text. Of two parts of one type the last counts, as in Kafka."""
    parts = sorted({part.entity_type: part.entity_name for part in entry.entity}.items())
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in parts)


def _audit(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    failed = {_entity(entry) for entry in response.entries if entry.error_code}
    for entry in request.entries:
        if _entity(entry) not in failed:
            quotas = {op.key: None if op.remove else op.value for op in entry.ops}
            yield AdministrativeChange("ALTER_CONFIGS", "QUOTA", _entity(entry), {"quotas": quotas})


@api(
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    versions="0-1",
    rights=NeededRights(cluster(ALTER_CONFIGS)),
    audit=_audit,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED UNSUPPORTED_VERSION INVALID_REQUEST KAFKA_STORAGE_ERROR"),
    failed=alter_client_quotas_failed,
)
async def handle_alter_client_quotas(
    context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Set and remove quotas; they apply to the next request of the entity. `validate_only` changes nothing.

    Refuses, per entity: INVALID_REQUEST, KAFKA_STORAGE_ERROR.
    """
    outcomes: dict[Entity, ErrorWithMessage] = {}
    for entry in request.entries:
        entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
        if entity in outcomes or len({op.key for op in entry.ops}) < len(entry.ops):
            shown = ", ".join(f"{entity_type}={name}" for entity_type, name in entity)
            message = f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})"
            outcomes[entity] = ErrorCode.INVALID_REQUEST, message
        else:
            outcomes[entity] = await _alter(context.services, entity, entry, validate_only=request.validate_only)
    return AlterClientQuotasResponse(
        entries=[
            AlteredEntryData(error_code=error, error_message=message, entity=_parts(entity))
            for entity, (error, message) in outcomes.items()
        ]
    )


async def _alter(services: Services, entity: Entity, entry: AlterEntryData, *, validate_only: bool) -> ErrorWithMessage:
    reason = check_entity(entity) or await _unknown_address(entity) or _wrong_quota(entity, entry.ops)
    if reason is not None:
        return ErrorCode.INVALID_REQUEST, reason
    if not validate_only:
        try:
            await services.client_quotas.change(entity, {op.key: None if op.remove else op.value for op in entry.ops})
        except StorageError as error:
            return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    return NO_PROBLEM


def _wrong_quota(entity: Entity, ops: list[OpData]) -> str | None:
    reasons = (check_quota(entity, op.key, op.value) for op in ops if not op.remove)
    return next((reason for reason in reasons if reason is not None), None)


async def _unknown_address(entity: Entity) -> str | None:
    for entity_type, name in entity:
        if entity_type == IP and name is not None and await address_of(name) is None:
            return f"{name} is not a valid IP or resolvable host."
    return None
