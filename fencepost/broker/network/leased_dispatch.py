"""Dispatch in a cluster whose nodes have leases: a node that may have lost its lease does not answer as a leader.

Whatever is written is guarded by the store, so an acknowledgement of a write is true whenever it leaves. What is
answered from memory is not: another node may lead by then, and know more. So the lease is compared when such an answer
leaves, not by a timer: a process that was stopped reads its sockets first when it goes on. In place of the answer the
client loses its connection, as it would if the node had died, and looks for the leader after its usual pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.log.durability.shared_log import SharedLog
from fencepost.broker.network.dispatch import Dispatcher
from fencepost.broker.requests.api import CloseConnection
from fencepost.broker.requests.produce_append import NotInTimeError, flushed_in_time
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fencepost.broker.handlers import RequestContext, Services
    from fencepost.broker.network.connection import Connection
    from fencepost.broker.quotas.client_quotas import ClientQuotas
    from fencepost.broker.requests.api import UsualAnswer
    from fencepost.broker.requests.long_polls import PendingReply, ReplyFrame
    from fencepost.broker.requests.produce_runs import ProduceRun, RunResult
    from fencepost.broker.requests.routes import Route
    from fencepost.protocol.framing import EqualLengthFrames

ANSWERED_WITHOUT_LEASE: Final = frozenset(
    {
        # Answered when the batches are committed, or from batches that were.
        ApiKey.PRODUCE,
        # Answered from the metadata store, or the same by every node.
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        # Of what is on this machine.
        ApiKey.DESCRIBE_LOG_DIRS,
    }
)
"""All other APIs answer as the leader of partitions, or as the coordinator that follows from them."""

LEASE_IS_OVER: Final = "this node may have lost its lease, and another one may lead what it led"


class LeasedDispatcher(Dispatcher):
    """Dispatches as `Dispatcher` does, with a look at the lease before an answer leaves.

    is_held:    whether the lease is certainly in force.
    shared_log: how much of what clients have sent waits to be committed; connections that send more have to wait.
    """

    def __init__(
        self,
        services: Services,
        *,
        loop: asyncio.AbstractEventLoop,
        quotas: ClientQuotas | None = None,
        is_held: Callable[[], bool],
        shared_log: SharedLog,
    ) -> None:
        super().__init__(services, loop=loop, quotas=quotas)
        self._is_held = is_held
        self._shared_log = shared_log

    # Answers

    def _require_lease(self, route: Route) -> None:
        if route.api.key not in ANSWERED_WITHOUT_LEASE and not self._is_held():
            raise CloseConnection(LEASE_IS_OVER)

    def _encode(self, route: Route, response: Any, context: RequestContext) -> ReplyFrame:
        self._require_lease(route)
        return super()._encode(route, response, context)

    def _encode_usual(self, route: Route, answer: UsualAnswer, context: RequestContext) -> ReplyFrame:
        self._require_lease(route)
        return super()._encode_usual(route, answer, context)

    async def _encode_in_slices(self, route: Route, response: Any, context: RequestContext) -> ReplyFrame:
        reply = await super()._encode_in_slices(route, response, context)
        self._require_lease(route)
        return reply

    async def _answer_run(self, run: ProduceRun, throttle_ms: int) -> ReplyFrame:
        if run.failure is None and run.end_offset > run.log.high_watermark:
            try:
                await flushed_in_time(run.log, run.end_offset, run.timeout_s)
            except (NotInTimeError, StorageError) as error:
                return run.failed(error, self._services, throttle_ms)
        return await super()._answer_run(run, throttle_ms)

    # Back-pressure

    def _start(
        self, route: Route, context: RequestContext, request: Any, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        started = super()._start(route, context, request, frame, connection)
        if route.api.key == ApiKey.PRODUCE:
            self._charge(len(frame), connection)
        return started

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None:
        result = super().dispatch_run(frames, connection)
        if result is not None:
            self._charge(result.requests_count * frames.frame_bytes, connection)
        return result

    def _charge(self, produced_bytes: int, connection: Connection) -> None:
        room = self._shared_log.room_after(produced_bytes)
        if room is not None:
            connection.block_until(room)
