"""Records of a topic as lines of JSON, streamed. The last line says how it ended: without one it was cut off."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from fencepost.client.errors import ClusterError
from fencepost.console import words
from fencepost.console.positions import Positions, word_of
from fencepost.console.reading.scan import Budget, Scan
from fencepost.console.web.record_queries import RECORDS_AT_ONCE, Hit, Reading, begin, hits_in, query_of
from fencepost.console.web.visit import BadFormError, Page, Visit
from fencepost.protocol.checked_json import text_or_base64

MOST_RECORDS: Final = 1_000_000
"""Of those that are looked at."""
MOST_BYTES: Final = 2 << 30
MOST_WRITTEN_BYTES: Final = 1 << 30
LONGEST_S: Final = 900.0
MOST_AT_ONCE: Final = 3
"""Downloads of a session."""
PATIENCE_S: Final = 20.0
CHECKED_EVERY_S: Final = 5.0


async def download(visit: Visit) -> Page | Response:
    """The records of a query: `as=shown` as a page shows them; `as=records` with all bytes, as `fencepost produce
    --json` reads them, and by default only those that a read_committed consumer gets.
    """
    name = visit.request.path_params["topic"]
    as_records = visit.parameter("as") == "records"
    default = {"order": "oldest", "stands": "committed" if as_records else "all"}
    query = query_of({**default, **{key: value for key, value in visit.parameters.items() if value}})
    if visit.session.downloads >= MOST_AT_ONCE:
        raise BadFormError(f"{MOST_AT_ONCE} downloads are under way already: wait for one, or end it")
    reading = await begin(visit.cluster, name, query, Budget(MOST_RECORDS, MOST_BYTES, LONGEST_S))
    lines = _Lines(visit, reading, as_records=as_records)
    file_name = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name
    )
    headers = {"Content-Disposition": f'attachment; filename="{file_name}.jsonl"'}
    return _Bounded(lines.stream(), headers=headers, media_type="application/x-ndjson")


class _Bounded(StreamingResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Who takes nothing off the connection is not waited for: the answer ends without its last line.
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_S + PATIENCE_S):
                await super().__call__(scope, receive, send)


class _Lines:
    def __init__(self, visit: Visit, reading: Reading, *, as_records: bool) -> None:
        self._visit = visit
        # Of its own: a download that is cancelled in the middle of an answer closes the connection.
        self._cluster = visit.cluster.again()
        self._reading = reading
        self._as_records = as_records
        self._written = 0
        self._written_bytes = 0

    async def stream(self) -> AsyncIterator[bytes]:
        scan = self._reading.scan(self._cluster, patience_s=PATIENCE_S)
        self._visit.session.downloads += 1
        try:
            reason = ""
            try:
                async for piece in self._pieces(scan):
                    yield piece
            except _EndedError as error:
                reason = str(error)
            except ClusterError as error:
                reason = str(error)
            yield self._end(scan, reason)
        finally:
            self._visit.session.downloads -= 1
            self._cluster.close()

    async def _pieces(self, scan: Scan) -> AsyncIterator[bytes]:
        checked_s = time.monotonic()
        async for found in scan.batches(RECORDS_AT_ONCE):
            hits = await hits_in(self._visit.values, self._reading.topic.name, self._reading.query, found)
            if self._as_records:
                hits = [one for one in hits if one.shown is not None]
            piece = "".join(self._line(one) for one in hits).encode("utf-8", "backslashreplace")
            self._written += len(hits)
            self._written_bytes += len(piece)
            if piece:
                yield piece
            if not self._visit.session.is_open:
                raise _EndedError("the session has ended")
            if self._written_bytes >= MOST_WRITTEN_BYTES:
                raise _EndedError(f"{MOST_WRITTEN_BYTES >> 20:,} MiB were written")
            if time.monotonic() - checked_s > CHECKED_EVERY_S:
                checked_s = time.monotonic()
                await self._check_topic()
        await self._check_topic()

    async def _check_topic(self) -> None:
        name = self._reading.topic.name
        view = await self._cluster.view([name])
        found = view.topics.get(name)
        if found is None or found.error or found.topic_id != self._reading.topic.topic_id:
            raise _EndedError(f"{name} was deleted meanwhile, or made again")

    def _line(self, hit: Hit) -> str:
        row, partition, shown = hit.found.row, hit.found.partition, hit.shown
        fields: dict[str, Any] = {
            "topic": partition.topic,
            "partition": partition.index,
            "offset": row.offset,
            "timestamp_ms": row.timestamp_ms,
            "time": words.clock(row.timestamp_ms),
            "stands": row.mark.value,
        }
        if shown is None:
            fields["commits"] = row.committed
        elif self._as_records:
            fields["key"] = text_or_base64(shown.record.key)
            fields["value"] = text_or_base64(shown.record.value)
            fields["headers"] = [[name, text_or_base64(value)] for name, value in shown.record.headers]
        else:
            fields["key"] = shown.key.text
            fields["value"] = shown.value.text
            fields["headers"] = [[name, part.text] for name, part in shown.headers]
        return json.dumps(fields, ensure_ascii=False) + "\n"

    def _end(self, scan: Scan, reason: str) -> bytes:
        budget, topic = self._reading.budget, self._reading.topic
        reasons = [reason or ("" if scan.ended == "complete" else scan.ended)]
        reasons += [f"{topic.name}-{index}: {error}" for index, error in sorted(scan.failed.items())]
        reasons += [f"{one.name}: {one.error}" for one in self._reading.offline]
        if self._reading.left_out:
            reasons.append(f"{self._reading.left_out:,} partitions are too many for one download")
        if scan.deleted:
            reasons.append(f"retention has deleted {scan.deleted:,} offsets while they were read")
        reasons = [one for one in reasons if one]
        end = {
            "complete": not reasons,
            "reasons": reasons,
            "records": self._written,
            "looked_at": budget.records,
            "read_bytes": budget.read_bytes,
            "seconds": round(budget.seconds, 3),
            "at": word_of(Positions(topic.topic_id, scan.positions)) if scan.has_more else None,
        }
        return (json.dumps({"end": end}, ensure_ascii=False) + "\n").encode()


class _EndedError(Exception):
    """A download ends here; the message is the reason."""
