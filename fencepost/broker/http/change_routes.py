"""Routes of the JSON API that change something; each change is in the audit log under the name of its token."""

from __future__ import annotations

from typing import Any, Final

from fencepost.broker.config import Alteration, AlterOperation
from fencepost.broker.http.exchange import BadRequestError, HttpRequest, HttpResponse, json_response
from fencepost.broker.http.open_transactions import described_transaction
from fencepost.broker.http.view_routes import find_open_log, find_transaction
from fencepost.broker.kernel.sliced_work import SLICE_S, run_in_slices
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.metrics.open_transactions import OpenHere, open_transactions
from fencepost.broker.metrics.scrape import Scrape
from fencepost.broker.requests.administrative_changes import LONGEST_REASON_CHARACTERS, AdministrativeChange
from fencepost.broker.security.audit import note_change
from fencepost.broker.transaction.markers import TransactionMarker, write_markers
from fencepost.diagnosis.stuck import Cause
from fencepost.protocol.errors import ErrorCode

PRINCIPAL: Final = "Token"
"""The type of the principal that the audit log has for a token."""
FIRST_COORDINATOR_EPOCH: Final = 0
"""A partition without a marker has -1 for its producer; every coordinator's epoch is 0 or more."""


def _text(content: dict[str, Any], name: str) -> str | None:
    value = content.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequestError(f"{name} must be a text")
    return value


def _known(content: dict[str, Any], *names: str) -> dict[str, Any]:
    """The body, if it has no other names. Raises BadRequestError."""
    unknown = content.keys() - set(names)
    if unknown:
        raise BadRequestError(f"the body has {min(unknown)[:100]!r}; known are {', '.join(names)}")
    return content


def _note(request: HttpRequest, api: str, change: AdministrativeChange) -> None:
    note_change(f"{PRINCIPAL}:{request.caller}", request.client_host, api, *change)


def _reason(content: dict[str, Any]) -> str:
    return (_text(content, "reason") or "")[:LONGEST_REASON_CHARACTERS]


async def abort_transaction(view: NodeView, request: HttpRequest) -> HttpResponse:
    """Abort the open transaction of an id and fence its producer, through its coordinator."""
    transactional_id = request.path[2]
    content = _known(request.json(), "reason")
    reason = _reason(content)
    before = find_transaction(view, transactional_id)
    error = await view.services.transactions.abort_by_administrator(transactional_id)
    if error is not ErrorCode.NONE:
        raise BadRequestError(
            f"{transactional_id[:300]!r} was not aborted: {_words(error)} (its state is {before.state.display_name})",
            503 if error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR) else 409,
        )
    details = {"outcome": "aborted", "producer_id": before.producer_id, "reason": reason}
    _note(request, "AbortTransaction", AdministrativeChange("ALTER", "TRANSACTIONAL_ID", transactional_id, details))
    after = view.services.transactions.find(transactional_id)
    now_ms = view.services.clock.now_ms()
    return json_response(
        {"aborted": True, "transaction": None if isinstance(after, ErrorCode) else described_transaction(after, now_ms)}
    )


def _words(error: ErrorCode) -> str:
    return {
        ErrorCode.INVALID_TXN_STATE: "it has no open transaction",
        ErrorCode.CONCURRENT_TRANSACTIONS: "its outcome is decided already",
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is loading; try again",
        ErrorCode.NOT_COORDINATOR: "its coordinator is offline, or another node",
    }.get(error, error.name)


async def abort_hanging(view: NodeView, request: HttpRequest) -> HttpResponse:
    """Write the marker of a transaction that no coordinator knows; refused while one does, or may.

    Body: `producer_id`, by default that of the transaction that holds the last stable offset; `reason`.
    Source: KIP-664.
    """
    log = find_open_log(view, request.path[2], request.path[3])
    content = _known(request.json(), "producer_id", "reason")
    producer_id = content.get("producer_id")
    if producer_id is not None and (type(producer_id) is not int or producer_id < 0):
        raise BadRequestError("producer_id must be a number of 0 or more")
    reason = _reason(content)
    scrape = Scrape(view)
    # A transaction that opens here while the coordinator's are collected is not among those.
    before = frozenset(log.producers.open_transactions())
    undecided = await run_in_slices(scrape.undecided(), SLICE_S)
    # From here on to the marker's append in one step.
    found = open_transactions(view, log, undecided, scrape.now_ms)
    hanging = next(
        (
            one
            for one in found
            if (one.opened.first_offset, one.opened.producer_id) in before
            and producer_id in (None, one.opened.producer_id)
        ),
        None,
    )
    if hanging is None or hanging.producer is None:
        whose = "no open transaction" if producer_id is None else f"no open transaction of producer {producer_id}"
        raise BadRequestError(f"{log.topic_partition} has {whose}", 404)
    if hanging.cause is not Cause.HANGING:
        raise BadRequestError(_why_not_hanging(hanging), 409)
    marker = TransactionMarker(
        producer_id=hanging.producer.producer_id,
        producer_epoch=hanging.producer.producer_epoch,
        committed=False,
        coordinator_epoch=max(FIRST_COORDINATOR_EPOCH, hanging.producer.coordinator_epoch),
        transaction_version=0,
        partitions=(log.topic_partition,),
    )
    (outcome,) = await write_markers(view.services.topics, [marker], view.services.clock.now_ms())
    error = outcome[log.topic_partition]
    if error is not ErrorCode.NONE:
        raise BadRequestError(f"the marker was refused: {error.name}", 409)
    producer_id = marker.producer_id
    details = {
        "outcome": "aborted",
        "producer_epoch": marker.producer_epoch,
        "partitions": [str(log.topic_partition)],
        "reason": reason,
    }
    _note(request, "AbortHanging", AdministrativeChange("ALTER", "PRODUCER", str(producer_id), details))
    return json_response({"aborted": True, "producer_id": producer_id, "last_stable_offset": log.last_stable_offset})


def _why_not_hanging(one: OpenHere) -> str:
    known = one.transaction
    if known is None:
        return (
            f"the coordinator of producer {one.opened.producer_id} is loading, offline or on another node: it may know "
            "the transaction"
        )
    return (
        f"the transaction does not hang: its coordinator knows it as that of {known.transactional_id[:300]!r}, "
        f"{known.state.display_name}; abort that id instead"
    )


async def set_log_level(view: NodeView, request: HttpRequest) -> HttpResponse:
    """Set the level of a logger, or remove it (null) so that the one above applies, until the next restart."""
    content = _known(request.json(), "logger", "level")
    logger, level = _text(content, "logger"), _text(content, "level")
    if logger is None:
        raise BadRequestError("logger names the logger, such as broker.log")
    services = view.services
    operation = AlterOperation.DELETE if level is None else AlterOperation.SET
    value = None if level is None else level.upper()
    refusal = services.loggers.alter(
        services.node_id, str(services.node_id), [Alteration(logger, operation, value)], validate_only=False
    )
    if refusal is not None:
        raise BadRequestError(refusal.message or refusal.error.name)
    details = {"configs": {logger: value}}
    _note(request, "LogLevels", AdministrativeChange("ALTER", "BROKER_LOGGER", str(services.node_id), details))
    return json_response({"logger": logger, "level": services.loggers.level(logger).name})
