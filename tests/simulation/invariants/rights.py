"""Invariant 25: what a client without a right cannot do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.group_offsets import OffsetCommitRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.simulation.clients.tenant import CHANGING, Right
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch
from tests.simulation.principals import OFFICER, TENANT, principal_of
from tests.simulation.trace import Exchange
from tests.support.allowed_replies import error_codes

REFUSALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
LATEST_EFFECT_S: Final = 10.0
"""A change whose answer was lost has taken effect by then, or never does: longer than requests and pauses take."""


class Change(NamedTuple):
    """A right that was given or taken, for all that is known from the wire. answered_s: None where it is not known."""

    granted: bool
    sent_s: float
    answered_s: float | None


class RefusedRequests(Invariant):
    """25. A request that rights do not allow is refused and has no effect, one that they allow is not refused: by the
    changes of rights that were acknowledged before it was sent. Nothing that a refused request has sent is ever stored.
    """

    number = 25

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._seen_entries = 0
        self._changes: list[tuple[Right, Exchange]] = []
        self._senders: dict[bytes, Exchange] = {}
        self._refused: dict[bytes, Exchange] = {}
        self._stored: set[bytes] = set()

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        if principal_of(exchange.client) != principal_of(TENANT) or exchange.answered_s is None:
            return
        self._look_at_wire()
        is_refused = not REFUSALS.isdisjoint(error_codes(exchange.response))
        rights = list(_needed(exchange.request))
        verdicts = [self._certainly(right, exchange.sent_s, exchange.answered_s) for right in rights]
        if False in verdicts and not is_refused:
            yield self.violation("a request without the right to it is not refused", exchange, *self._history(rights))
        if all(verdicts) and is_refused:
            yield self.violation("a request with all rights is refused", exchange, *self._history(rights))
        if not is_refused:
            return
        for text in _texts(exchange.request):
            self._refused[text] = exchange
            if text in self._stored:
                yield self.violation("a request is refused and has an effect", exchange)
        if isinstance(exchange.request, FetchRequest):
            for topic in exchange.response.responses:
                for partition in topic.partitions:
                    if partition.error_code in REFUSALS and partition.records:
                        yield self.violation("a refused fetch delivers records", exchange)

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if TENANT not in self.evidence.world.secured or batch.is_control:
            return
        self._look_at_wire()
        for record in batch.records:
            if record.value is None:
                continue
            for text in _marked(record.value):
                self._stored.add(text)
                refused = self._refused.get(text)
                if refused is not None:
                    yield self.violation(f"a refused request is stored in {history} after all", refused)
                sender = self._senders.get(text)
                if sender is None:
                    continue
                rights = list(_needed(sender.request))
                if False in [self._certainly(right, sender.sent_s, batch.at_s) for right in rights]:
                    yield self.violation(
                        f"a request without the right to it is stored in {history}", sender, *self._history(rights)
                    )

    # What is known of rights

    def _look_at_wire(self) -> None:
        entries = self.evidence.world.trace.entries
        for entry in entries[self._seen_entries :]:
            if not isinstance(entry, Exchange):
                continue
            if entry.client == OFFICER:
                self._changes += [(right, entry) for right in _changed(entry.request)]
            elif principal_of(entry.client) == principal_of(TENANT):
                for text in _texts(entry.request):
                    self._senders[text] = entry
        self._seen_entries = len(entries)

    def _of(self, wanted: Right) -> list[Change]:
        found = []
        for right, exchange in self._changes:
            if right == wanted:
                is_done = exchange.answered_s is not None and set(error_codes(exchange.response)) <= {ErrorCode.NONE}
                granted = isinstance(exchange.request, CreateAclsRequest)
                found.append(Change(granted, exchange.sent_s, exchange.answered_s if is_done else None))
        return found

    def _certainly(self, right: Right, since_s: float, until_s: float) -> bool | None:
        """Whether the tenant has had a right all the time; None where that cannot be told."""
        changes = self._of(right)
        known = [change for change in changes if change.answered_s is not None and change.answered_s <= since_s]
        last = max(known, key=lambda change: change.sent_s, default=None)
        granted, sent_s = (False, 0.0) if last is None else (last.granted, last.sent_s)
        for change in changes:
            may_count = change.sent_s <= until_s
            if change.answered_s is not None:
                may_count = may_count and change.answered_s > sent_s
            else:
                may_count = may_count and change.sent_s + LATEST_EFFECT_S > sent_s
            if may_count and change.granted != granted:
                return None
        return granted

    def _history(self, rights: list[Right]) -> list[object]:
        return [(*right, self._of(right)[-4:]) for right in rights]


def _changed(request: Any) -> Iterator[Right]:
    """The rights of the tenant that a request changes."""
    if isinstance(request, CreateAclsRequest):
        rules = [(rule.operation, rule.resource_type, rule.resource_name) for rule in request.creations]
    elif isinstance(request, DeleteAclsRequest):
        rules = [
            (rule.operation, rule.resource_type_filter, rule.resource_name_filter or "") for rule in request.filters
        ]
    else:
        return
    for operation, resource, name in rules:
        right = AclOperation(operation), AclResource(resource), name
        if right in CHANGING:
            yield right


def _needed(request: Any) -> Iterator[Right]:
    """By Kafka's documentation of operations and resources."""
    if isinstance(request, ProduceRequest):
        for topic in request.topic_data:
            yield AclOperation.WRITE, AclResource.TOPIC, topic.name
    elif isinstance(request, FetchRequest):
        for wanted in request.topics:
            yield AclOperation.READ, AclResource.TOPIC, wanted.topic
    elif isinstance(request, OffsetCommitRequest):
        yield AclOperation.READ, AclResource.GROUP, request.group_id
        for committed in request.topics:
            yield AclOperation.READ, AclResource.TOPIC, committed.name
    elif isinstance(request, InitProducerIdRequest | EndTxnRequest):
        yield AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id or ""
    elif isinstance(request, AddPartitionsToTxnRequest):
        yield AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.v3_and_below_transactional_id
    elif isinstance(request, DeleteTopicsRequest):
        for name in request.topic_names:
            yield AclOperation.DELETE, AclResource.TOPIC, name
    elif isinstance(request, CreateAclsRequest | DeleteAclsRequest):
        yield AclOperation.ALTER, AclResource.CLUSTER, ""


def _texts(request: Any) -> Iterator[bytes]:
    """What a request would have stored, in words that no other request has."""
    if isinstance(request, ProduceRequest):
        for topic in request.topic_data:
            for partition in topic.partition_data:
                for batch in iterate_batches(partition.records or b""):
                    for record in read_records(batch):
                        yield from _marked(bytes(record.value or b""))
    elif isinstance(request, OffsetCommitRequest):
        for committed in request.topics:
            for offset in committed.partitions:
                yield from _marked((offset.committed_metadata or "").encode())


def _marked(content: bytes) -> Iterator[bytes]:
    """The texts of the tenant in some bytes."""
    begin = f"<{TENANT}".encode()
    position = content.find(begin)
    while position >= 0:
        end = content.find(b">", position)
        if end < 0:
            return
        yield content[position : end + 1]
        position = content.find(begin, end)
