"""Asks one broker what a sequence wants to know, and writes down what it answered, in words that both brokers share."""

from __future__ import annotations

import itertools
import secrets
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.protocol.declaration import SCHEMA_ATTRIBUTE, struct_schema_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.group_admin import ListGroupsResponse
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.protocol.schema import schema_of
from tests.differences.connection import Connection, ConnectionClosedError, Login
from tests.differences.plain import Names, plain

CLOSED = "the connection is closed"
SILENCE = "no reply"
SILENCE_S = 3.0
BEHIND = 2  # the correlation id of the second request on a connection

NO_API = -1
GROUP, TRANSACTION = 0, 1
GROUP_CONFIGS = 32
SET = 0
MARK = "consumer.session.timeout.ms"
FIRST_MARK = 45_001
NOT_YET = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What Kafka says while it gets ready, which is no answer yet."""
ATTEMPTS = 200
PAUSE_S = 0.05
SHORT_PAUSE_S = 0.002
FIRST_TIMESTAMP_MS = 1_700_000_000_000


class Answer(NamedTuple):
    """What a broker said in one situation: a reply as plain data, or one of CLOSED and SILENCE.

    api_key: of the request; NO_API where a sequence sent bytes of its own.
    """

    situation: str
    api_key: int
    version: int
    reply: Any


@dataclass
class Pending:
    """A request that was sent on its own connection and may wait for others."""

    connection: Connection
    situation: str
    api_key: int
    version: int


class Exchange:
    """One theme's conversation with one broker.

    answers: what was asked so far, in order.
    served:  lowest and highest version by API key, as the broker advertises them.
    token:   what no other exchange with the broker has; given where the hash of a name is to be the same each time.
    login:   whose requests they are, where the broker lets nobody in without.
    """

    def __init__(self, host: str, port: int, *, token: str | None = None, login: Login | None = None) -> None:
        self._host, self._port, self._login = host, port, login
        self._connection = self._new_connection(login)
        self._token = token or secrets.token_hex(4)
        self._names = Names(self._token)
        self._pending: list[Pending] = []
        self._others: list[Connection] = []
        self._marks = itertools.count(FIRST_MARK)
        self.answers: list[Answer] = []
        reply = self.call(ApiVersionsRequest("asker", "1"), 4)
        self.served = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}

    def close(self) -> None:
        self._connection.close()
        for pending in self._pending:
            pending.connection.close()
        for connection in self._others:
            connection.close()

    def connect(self, login: Login | None = None) -> Connection:
        """A further connection, on which requests can be asked; it ends with the exchange at the latest."""
        connection = self._new_connection(login or self._login)
        self._others.append(connection)
        return connection

    def connect_as_nobody(self) -> Connection:
        """A further connection that has not authenticated."""
        connection = self._new_connection(None)
        self._others.append(connection)
        return connection

    def _new_connection(self, login: Login | None) -> Connection:
        connection = Connection(self._host, self._port)
        if login is not None:
            connection.log_in(login)
        return connection

    # Names

    def name(self, base: str, version: int | None = None) -> str:
        """A name that no other run, and no other version, uses; answers show only its base."""
        return f"{base}-{self._token}" if version is None else f"{base}.v{version}-{self._token}"

    def is_ours(self, name: str | None) -> bool:
        """Whether it is the name of something that this run has made."""
        return name is not None and self._token in name

    def plain_text(self, text: str) -> str:
        """A text as answers show it."""
        return self._names.of_text(text)

    def remember(self, value: Any, name: str) -> None:
        """Call an id made by the broker by this name in answers."""
        self._names.remember(value, name)

    def versions(self, request_type: type[Any], *, lowest: int = 0, highest: int = 0x7FFF) -> range:
        """The versions of a request that the broker serves and we can speak, within bounds; none when it is not
        served.
        """
        declared = schema_of(request_type).versions
        served_from, served_to = self.served.get(schema_of(request_type).api_key, (1, 0))
        return range(max(declared.first, served_from, lowest), min(declared.last, served_to, highest) + 1)

    # Questions whose answers count

    def ask(
        self,
        situation: str,
        request: Any,
        version: int,
        *,
        retry: Sequence[ErrorCode] = (),
        connection: Connection | None = None,
        only: Callable[[Any], None] | None = None,
    ) -> Any:
        """Send a request and write down the reply; returns it, or None without one, which ends a given connection.

        retry:      errors that only mean that something else is not finished, beside NOT_YET.
        connection: from `connect`, where it matters which one it is.
        only:       takes out of the reply what other runs have left on the broker.
        """
        try:
            reply = self.call(request, version, retry=retry, connection=connection)
        except (ConnectionClosedError, TimeoutError) as failure:
            if connection is None:
                self._reconnect()
            else:
                connection.close()
            written = SILENCE if isinstance(failure, TimeoutError) else CLOSED
            self._write_down(situation, request.api_key, version, written)
            return None
        if isinstance(reply, ListGroupsResponse):  # what other runs have left on the broker is not asked about
            reply.groups = [group for group in reply.groups if self._token in group.group_id]
        if only is not None:
            only(reply)
        self._write_down(situation, request.api_key, version, plain(reply, self._names, situation))
        return reply

    def ask_until(
        self, situation: str, request: Any, version: int, is_settled: Callable[[Any], bool], *, pause_s: float = PAUSE_S
    ) -> Any:
        """The same for what Kafka does in its own time: only the last reply is written down, which satisfies
        `is_settled` unless that never came true."""
        for _ in range(ATTEMPTS):
            reply = self.call(request, version)
            if is_settled(reply):
                break
            time.sleep(pause_s)
        self._write_down(situation, request.api_key, version, plain(reply, self._names, situation))
        return reply

    def ask_bytes(self, situation: str, frame: bytes, *, version: int = 0, patience_s: float = SILENCE_S) -> None:
        """Send a whole frame, on its own connection; what comes back is written down as it is, unless it is
        longer than an error would be."""
        with Connection(self._host, self._port) as connection:
            try:
                connection.send_bytes(frame)
                reply = connection.receive_frame(patience_s)
                written = reply.hex() if len(reply) <= 20 else "a reply"
            except ConnectionClosedError:
                written = CLOSED
            except TimeoutError:
                written = SILENCE
        self._write_down(situation, NO_API, version, written)

    def ask_for_silence(self, situation: str, request: Any, version: int) -> None:
        """Send a request that is not answered; a reply, or the end of the connection, is written down.

        What tells is the reply to the request behind it.
        """
        with Connection(self._host, self._port) as connection:
            connection.send(request, version)
            try:
                connection.send(ApiVersionsRequest(), 0)
                (correlation_id,) = struct.unpack_from(">i", connection.receive_frame())
                written = SILENCE if correlation_id == BEHIND else "a reply"
            except ConnectionClosedError:
                written = CLOSED
        self._write_down(situation, request.api_key, version, written)

    def begin(self, situation: str, request: Any, version: int) -> Pending:
        """Send a request that waits for others, on its own connection."""
        pending = Pending(Connection(self._host, self._port), situation, schema_of(type(request)).api_key, version)
        pending.connection.send(request, version)
        self._pending.append(pending)
        return pending

    def finish(self, pending: Pending) -> Any:
        """Wait for the reply to what was begun, and write it down; returns it, or None without one."""
        try:
            reply = pending.connection.receive(pending.api_key, pending.version)
        except ConnectionClosedError:
            self._write_down(pending.situation, pending.api_key, pending.version, CLOSED)
            return None
        except TimeoutError:
            self._write_down(pending.situation, pending.api_key, pending.version, SILENCE)
            return None
        finally:
            pending.connection.close()
            self._pending.remove(pending)
        self._write_down(
            pending.situation, pending.api_key, pending.version, plain(reply, self._names, pending.situation)
        )
        return reply

    def note(self, situation: str, version: int, what: Any) -> None:
        """Write down what a sequence has worked out of replies itself."""
        self._write_down(situation, NO_API, version, what)

    # Questions whose answers do not count

    def call(
        self,
        request: Any,
        version: int,
        *,
        retry: Sequence[ErrorCode] = (),
        connection: Connection | None = None,
    ) -> Any:
        """Send a request and return the reply, once the broker is ready to give one. Raises ConnectionClosedError."""
        asked = connection or self._connection
        not_yet = NOT_YET.union(retry)
        for _ in range(ATTEMPTS):
            asked.send(request, version)
            reply = asked.receive(schema_of(type(request)).api_key, version)
            if not_yet.isdisjoint(error_codes(reply)):
                break
            time.sleep(PAUSE_S)
        return reply

    def create_topic(self, base: str, *, partitions: int = 1, version: int | None = None, **configs: str) -> str:
        """Create a topic that can be written to when this returns; configs as in `cleanup_policy="compact"`. Returns
        its name."""
        name = self.name(base, version)
        # What a sequence writes is old, and must not be deleted while it runs.
        given = {"retention_ms": "-1"} | configs
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in given.items()]
        topic = CreatableTopic(name, num_partitions=partitions, replication_factor=1, configs=settings)
        reply = self.call(CreateTopicsRequest(topics=[topic]), 7)
        assert reply.topics[0].error_code == 0, reply
        self.remember(reply.topics[0].topic_id, f"the id of {base}")
        latest = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        self.call(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name, latest)]),
            7,
            retry=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        )
        self.topic_id(name)
        return name

    def topic_id(self, name: str) -> bytes:
        """The id of a topic that exists."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        reply = self.call(request, 12, retry=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
        topic_id: bytes = reply.topics[0].topic_id
        return topic_id

    def find_coordinator(self, key: str, key_type: int) -> None:
        """Return when the coordinator of a key answers."""
        self.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)

    def fill(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Append batches to a partition, one request each."""
        for batch in batches:
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, memoryview(batch))])
            reply = self.call(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), 9)
            assert error_codes(reply) == {0}, reply

    def settle(self) -> None:
        """Return when the broker acts by all that was changed before.

        Kafka's controller answers first. Its changes reach the broker in their order, and the next is not taken in
        before the last has been carried out: so a second mark is seen only when what came with the first is done.
        """
        group = self.name("settling")
        for _ in range(2):
            value = str(next(self._marks))
            mark = IncrementalAlterConfigsResource(GROUP_CONFIGS, group, [IncrementalAlterableConfig(MARK, SET, value)])
            self.call(IncrementalAlterConfigsRequest([mark]), 1)
            look = DescribeConfigsRequest([DescribeConfigsResource(GROUP_CONFIGS, group, [MARK])])
            for _ in range(ATTEMPTS):
                if self.call(look, 4).results[0].configs[0].value == value:
                    break
                time.sleep(SHORT_PAUSE_S)

    # Inside

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = self._new_connection(self._login)

    def _write_down(self, situation: str, api_key: int, version: int, reply: Any) -> None:
        self.answers.append(Answer(situation, api_key, version, reply))


def error_codes(reply: Any) -> set[int]:
    """All error codes anywhere in a reply, 0 among them where something went well."""
    found: set[int] = set()
    pending = [reply]
    while pending:
        value = pending.pop()
        for field in struct_schema_of(type(value)).fields:
            content = getattr(value, field.name)
            if field.name.endswith("error_code"):
                found.add(content)
            elif isinstance(content, list):
                pending += [element for element in content if hasattr(type(element), SCHEMA_ATTRIBUTE)]
            elif hasattr(type(content), SCHEMA_ATTRIBUTE):
                pending.append(content)
    return found


def batch(
    count: int = 2,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = FIRST_TIMESTAMP_MS,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    **options: Any,
) -> bytes:
    """A batch of `count` records, a millisecond apart; further options are those of `build_batch`."""
    records = [Record(index, timestamp_ms + index, key, value, (("header", b"x"),)) for index in range(count)]
    built = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
        **options,
    )
    return bytes(built)


def raw_frame(api_key: int, version: int, body: bytes, *, client_id: bytes | None = b"raw", tags: bytes = b"") -> bytes:
    """A frame around any body; `tags` is what stands between client id and body, b"\\0" in flexible versions."""
    header = struct.pack(">hhih", api_key, version, 1, -1 if client_id is None else len(client_id))
    header += (client_id or b"") + tags
    return struct.pack(">i", len(header) + len(body)) + header + body
