"""Metadata store in PostgreSQL, which the brokers of several machines share.

A change whose answer is lost is repeated, and each is made so that its author recognises it: so a call returns the
actual outcome, or raises UnavailableError when PostgreSQL has not answered for long.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar
from uuid import UUID, uuid4

from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress
from fencepost.broker.cluster.postgres.lease_rows import place_missing, remove_rows
from fencepost.broker.cluster.postgres.schema import (
    DOCUMENTS,
    PLACEMENT,
    PLACING,
    TOPICS,
    lock,
    prepare,
)
from fencepost.broker.cluster.postgres.session import Session, Work
from fencepost.broker.cluster.postgres.standbys import StandbyWatch, require_durability
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.checked_json import parse_object

log = get_logger(__name__)

FOLLOWING = Place("following of changes in the cluster's metadata", Policy.RETRY)

RETRY_PAUSE_S: Final = 0.5
_READ_TOPIC: Final = "SELECT name, topic_id, partition_count, configs FROM"

T = TypeVar("T")


class PostgresMetadataStore:
    """The view of one node. It is notified of others' changes at once, by NOTIFY; `seen_counts` finds a lost NOTIFY.

    on_placement_changed: awaited after another node may have changed the leaders of partitions, and after this one has
                          created or grown a topic: the leader of a partition must be known before the partition is.
    incarnation:          names this node's sessions; a new one each time that the node starts again.
    standbys:             looks at the server's standbys. asynchronous_accepted: see `require_durability`.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self.standbys = StandbyWatch()
        self.asynchronous_accepted = False
        self.on_topics_changed: list[Callable[[], None]] = []
        self.on_documents_changed: list[Callable[[], None]] = []
        self.on_placement_changed: list[Callable[[], Awaitable[None]]] = []
        self.address = address
        self.incarnation = uuid4()
        self.session = Session(address, lambda: self.session_name("metadata"), on_connected=self._listen)
        self._counts: dict[str, int] = {}
        self._may_have_changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._follows = asyncio.Lock()

    def session_name(self, purpose: str) -> str:
        """The application_name of a session of this incarnation: 63 bytes at most are kept by PostgreSQL."""
        return f"{session_prefix(self.incarnation)} {purpose}"

    async def open(self) -> None:
        async def ready(connection: Connection) -> None:
            await require_durability(connection, self.address, asynchronous_accepted=self.asynchronous_accepted)
            await prepare(connection, self.address)

        await self.session.run(ready, repeat_for_s=0)
        self._counts = await self._read_counts()
        self._following = FOLLOWING.start_retrying(self._follow)

    async def close(self) -> None:
        await end_tasks(self._following)
        self._following = None
        await self.session.close()

    async def look_at_standbys(self) -> None:
        """Raises StorageError."""
        await self.session.run(lambda connection: self.standbys.look(connection, self.address), repeat_for_s=0)

    async def cluster_id(self) -> str:
        async def read(connection: Connection) -> str:
            return str(await connection.fetchval("SELECT cluster_id FROM cluster"))

        return await self.session.run(read)

    # Topics

    async def load_topics(self) -> list[TopicMetadata]:
        return await self.session.run(lambda connection: _read_topics(connection, "topics"))

    async def load_deletions(self) -> list[TopicMetadata]:
        return await self.session.run(lambda connection: _read_topics(connection, "deletions"))

    async def create_topic(self, topic: TopicMetadata) -> bool:
        topic_id = UUID(bytes=topic.topic_id)

        async def create(connection: Connection) -> bool:
            await lock(connection, PLACING)
            await connection.execute(
                "INSERT INTO topics (name, topic_id, partition_count, configs) "
                "SELECT $1::text, $2::uuid, $3::int, $4::jsonb "
                "WHERE NOT EXISTS (SELECT 1 FROM topics WHERE replace(name, '.', '_') = replace($1, '.', '_')) "
                "ON CONFLICT (name) DO NOTHING",
                topic.name,
                topic_id,
                topic.partition_count,
                json.dumps(dict(topic.configs)),
            )
            # Its id is of this call alone: another one was there before.
            found = await connection.fetchval("SELECT topic_id FROM topics WHERE name = $1", topic.name)
            if found != topic_id:
                return False
            await place_missing(connection, topic.name)
            return True

        return await self._placing(create)

    async def set_partition_count(self, name: str, partition_count: int, *, topic_id: bytes, before: int) -> bool:
        async def grow(connection: Connection) -> bool:
            await lock(connection, PLACING)
            # An earlier attempt may have changed it, without an answer.
            statement = "UPDATE topics SET partition_count = $2 WHERE topic_id = $1 AND partition_count IN ($2, $3)"
            is_known = await _changed(connection, statement, UUID(bytes=topic_id), partition_count, before)
            if is_known:
                await place_missing(connection, name)
            return is_known

        return await self._placing(grow)

    async def _placing(self, work: Work[bool]) -> bool:
        is_changed = await self.session.transaction(work)
        if is_changed:
            await self._placement_changed()
        return is_changed

    async def delete_topic(self, name: str, topic_id: bytes) -> bool:
        found_before = False

        async def delete(connection: Connection) -> bool:
            nonlocal found_before
            await lock(connection, PLACING)
            moved = await connection.execute(
                "INSERT INTO deletions (topic_id, name, partition_count, configs) "
                "SELECT topic_id, name, partition_count, configs FROM topics WHERE name = $1 AND topic_id = $2",
                name,
                UUID(bytes=topic_id),
            )
            if moved == "INSERT 0 0":
                return found_before  # an earlier attempt has deleted it
            found_before = True
            await remove_rows(connection, topic_id)
            await connection.execute("DELETE FROM topics WHERE name = $1", name)
            return True

        return await self.session.transaction(delete)

    async def finish_deletion(self, topic_id: bytes) -> None:
        await self._change("DELETE FROM deletions WHERE topic_id = $1", UUID(bytes=topic_id))

    async def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, topic_id: bytes, before: Mapping[str, str]
    ) -> bool:
        # An earlier attempt may have changed it, without an answer.
        statement = "UPDATE topics SET configs = $2 WHERE topic_id = $1 AND configs IN ($2, $3)"
        texts = json.dumps(dict(configs)), json.dumps(dict(before))
        return await self._change(statement, UUID(bytes=topic_id), *texts)

    async def _change(self, statement: str, *parameters: object) -> bool:
        return await self.session.run(lambda connection: _changed(connection, statement, *parameters))

    # Documents

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        async def read(connection: Connection) -> tuple[bytes | None, int]:
            row = await connection.fetchrow("SELECT value, version FROM documents WHERE key = $1", key)
            return (None, 0) if row is None else (bytes(row["value"]), int(row["version"]))

        return await self.session.run(read)

    async def compare_and_set(
        self, key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False
    ) -> bool:
        written_by = uuid4()

        async def write(connection: Connection) -> bool:
            statement = (
                "INSERT INTO documents (key, value, version, written_by) VALUES ($1, $2, $3 + 1, $4) "
                "ON CONFLICT (key) DO NOTHING"
                if expected_version == 0
                else "UPDATE documents SET value = $2, version = $3 + 1, written_by = $4 "
                "WHERE key = $1 AND version = $3"
            )
            if await _changed(connection, statement, key, value, expected_version, written_by):
                return True
            # Another node may have written the same value: only the mark tells whose write it was.
            found = await connection.fetchval("SELECT written_by FROM documents WHERE key = $1", key)
            return bool(found == written_by)

        return await self.session.run(write)

    # Changes by other nodes

    def seen_counts(self, counts: Mapping[str, int]) -> None:
        """Follow the changes that these counts show, in case a NOTIFY was lost."""
        if any(self._counts.get(kind) != count for kind, count in counts.items()):
            self._may_have_changed.set()

    async def _listen(self, connection: Connection) -> None:
        def heard(_connection: object, _pid: int, _channel: str, _kind: str) -> None:
            self._may_have_changed.set()

        await connection.add_listener(self.address.channel, heard)
        self._may_have_changed.set()  # a NOTIFY sent while there was no connection is lost

    async def _follow(self) -> None:
        while True:
            await self._may_have_changed.wait()
            self._may_have_changed.clear()
            try:
                await self.follow()
            except StorageError as error:
                log.error("metadata_not_followed", reason=str(error))  # noqa: TRY400  # the reason says it all
                self._may_have_changed.set()
                await asyncio.sleep(RETRY_PAUSE_S)
            except BaseException:
                self._may_have_changed.set()
                raise

    async def follow(self) -> None:
        """Check for changes by other nodes now. A NOTIFY arrives some moments after its commit."""
        async with self._follows:
            counts = await self._read_counts()
            changed = {kind for kind, count in counts.items() if self._counts.get(kind) != count}
            if PLACEMENT in changed:
                await self._placement_changed()
            self._counts = counts
            for kind, hooks in ((TOPICS, self.on_topics_changed), (DOCUMENTS, self.on_documents_changed)):
                if kind in changed:
                    for hook in list(hooks):
                        hook()

    async def _read_counts(self) -> dict[str, int]:
        return await self.session.run(_read_counts)

    async def _placement_changed(self) -> None:
        for hook in list(self.on_placement_changed):
            await hook()


def session_prefix(incarnation: UUID) -> str:
    """How the names of all sessions of an incarnation begin."""
    return f"fencepost {incarnation}"


async def _read_counts(connection: Connection) -> dict[str, int]:
    return {kind: count for kind, count in await connection.fetch("SELECT kind, count FROM changes")}  # noqa: C416  # records are no pairs


async def _changed(connection: Connection, statement: str, *parameters: object) -> bool:
    """Run a statement; return whether it changed a row."""
    status: str = await connection.execute(statement, *parameters)
    return not status.endswith(" 0")


async def _read_topics(connection: Connection, table: str) -> list[TopicMetadata]:
    return [
        TopicMetadata(name, topic_id.bytes, partition_count, MappingProxyType(parse_object(configs).texts_by_name()))
        for name, topic_id, partition_count, configs in await connection.fetch(f"{_READ_TOPIC} {table}")
    ]
