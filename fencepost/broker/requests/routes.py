"""Routes of requests: the declaration of an API, and its route for one version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import request_header_version
from fencepost.protocol.primitives import RECORDS
from fencepost.protocol.schema import schema_of
from fencepost.protocol.shape import field_codes

if TYPE_CHECKING:
    import asyncio

    from fencepost.broker.requests.administrative_changes import AuditedChanges
    from fencepost.broker.requests.declared_errors import Errors
    from fencepost.broker.requests.declared_rights import NeededRights


RoomAfter = Callable[[int], "asyncio.Future[None] | None"]
"""Notes bytes that a client has sent. Returns None, or a future that ends at room for more. See `SharedLog`."""


class Repeats(NamedTuple):
    """How requests of an API repeat: the paths of the fields that vary, in a request and in its usual answer.

    A path is as `topics[].partitions[].fetch_offset`. Records come last.
    """

    request: tuple[str, ...]
    answer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Api:
    """One served API.

    versions:   lowest and highest version served, both inclusive (ApiVersions may advertise a lower minimum, see
                `advertised_minimum`).
    unstable_from: first version whose message Kafka may still change: served, and shown, only with
                `unstable.api.versions.enable`.
    module:     module that declares the handler.
    failed:     builds the reply in which the whole request failed with one error code.
    rights:     rights that a client needs; None if it needs none, or if the handler checks them itself.
    errors:     the codes that a reply may have anywhere, in any version.
    audit:      function that names the changes by a request; None unless the API is administrative.
    awaits_other_nodes: answers when the change is in force on all nodes.
    needs_lease: answers from memory, as a leader or a coordinator.
    is_cancelled_on_disconnect: the handler waits only for its client and leaves nothing half done.
    repeats:    None if the API's requests are decoded each time.
    """

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    minimum_version: int
    maximum_version: int
    advertised_minimum: int
    module: str
    handler: Callable[[Any, Any], Any]
    failed: Callable[[Any, ErrorCode, int], Any]
    errors: Errors
    rights: NeededRights | None = None
    audit: AuditedChanges | None = None
    awaits_other_nodes: bool = False
    needs_lease: bool = True
    is_cancelled_on_disconnect: bool = False
    unstable_from: int | None = None
    repeats: Repeats | None = None

    def highest_version(self, *, with_unstable: bool) -> int:
        if self.unstable_from is None or with_unstable:
            return self.maximum_version
        return self.unstable_from - 1


class Route:
    """One version of an API: its handler, and how its requests are read.

    carries_records: whether requests have record batches, which are slices of the frame.
    varying:      the paths of the fields in which requests that repeat differ; None if they are decoded each time.
    answer_paths: the paths of the fields that vary in a usual answer; None if this version lacks one of them.
    require_lease: called before an answer leaves; None if there is no lease, or answers are true without it.
    room_after:    called with the bytes of each request that has started; None unless requests have to wait while too
                   many bytes wait to be committed.
    """

    __slots__ = (
        "answer_paths",
        "api",
        "carries_records",
        "header_version",
        "is_flexible",
        "require_lease",
        "room_after",
        "varying",
        "version",
    )

    def __init__(
        self,
        api: Api,
        version: int,
        *,
        require_lease: Callable[[], None] | None = None,
        room_after: RoomAfter | None = None,
    ) -> None:
        self.api = api
        self.require_lease = require_lease
        self.room_after = room_after
        self.version = version
        self.header_version = request_header_version(api.key, version)
        schema = schema_of(api.request)
        self.is_flexible = version in schema.flexible
        self.carries_records = any(field.type is RECORDS for field in schema.all_fields())
        repeats = api.repeats
        self.varying = self.answer_paths = None
        if repeats is not None:
            self.varying = repeats.request
            if field_codes(api.response, version).keys() >= set(repeats.answer):
                self.answer_paths = repeats.answer
