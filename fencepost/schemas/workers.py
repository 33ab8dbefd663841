"""Gives orders to the process that reads and writes values, starts it when it is needed, and ends it when it hangs."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.schemas.schema import Schema
from fencepost.schemas.worker import LARGEST_ANSWER_BYTES, MOST_CODECS

SCHEMA_TIMEOUT_S: Final = 20.0
"""Of a schema, for which the process may have to import the libraries: half a second on a quiet machine."""
VALUE_TIMEOUT_S: Final = 3.0
MOST_ENDED: Final = 2
"""Of one call: values that end the process each cost a start."""
ENDED: Final = "reading it ended the process that reads values"
TOO_LONG: Final = f"reading it takes longer than {VALUE_TIMEOUT_S:.0f} s"
GIVEN_UP: Final = "it was not read, since other values ended the process that reads values"
MOST_REMEMBERED: Final = 1_000
CHUNK: Final = 200


@dataclass(frozen=True)
class Order:
    """A value to read: content and indexes; or one to write, with the name of a Protobuf message, or an empty one."""

    schema: Schema
    content: bytes | None = None
    indexes: tuple[int, ...] = ()
    value: Any = None
    message: str = ""


class WorkerClosedError(Exception):
    """The program ends, or the page that asked is gone."""


class Worker:
    """One process, one call at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []
        self._defined: dict[Schema, str] = {}
        self._is_closed = False
        self._lock = asyncio.Lock()
        self._ending: OrderedDict[tuple[Schema, bytes | None], str] = OrderedDict()
        """Values that ended the process, with the reason: a page that is looked at again does not wait again."""

    async def carry_out(self, orders: Sequence[Order]) -> list[dict[str, Any]]:
        """Return the answer to each order, as `Desk.answer` makes it. Raises WorkerClosedError after `close`, also to a
        call that is under way."""
        answers: list[dict[str, Any]] = []
        ended = 0
        async with self._lock:
            try:
                while len(answers) < len(orders):
                    if ended >= MOST_ENDED:
                        answers.append({"error": GIVEN_UP})
                        continue
                    order = orders[len(answers)]
                    reason = self._ending.get((order.schema, order.content))
                    if reason is None:
                        reason = await self._give(self._next(orders, len(answers)), answers)
                        ended += reason is not None
                    if reason is not None:
                        self._remember(orders[len(answers)], reason)
                        answers.append({"error": reason})
            except BaseException:
                # Answers to this call may still come, and would be taken for those to the next one.
                self._end()
                raise
        return answers

    def _next(self, orders: Sequence[Order], start: int) -> Sequence[Order]:
        """The orders from `start` on, up to one that is known to end the process."""
        end = start
        while end < min(len(orders), start + CHUNK) and (orders[end].schema, orders[end].content) not in self._ending:
            end += 1
        return orders[start:end]

    def _remember(self, order: Order, reason: str) -> None:
        if order.content is not None:
            self._ending[order.schema, order.content] = reason
            if len(self._ending) > MOST_REMEMBERED:
                self._ending.popitem(last=False)

    async def _give(self, orders: Sequence[Order], answers: list[dict[str, Any]]) -> str | None:
        """Append answers; returns None, or why the process ended at the order after the last answer."""
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        expected: list[tuple[float, bool]] = []
        for order in orders:
            if (definition := self._definition(order.schema)) is not None:
                process.stdin.write(definition)
                expected.append((SCHEMA_TIMEOUT_S, False))
            process.stdin.write(self._line(order))
            expected.append((VALUE_TIMEOUT_S, True))
        for timeout_s, is_value in expected:
            try:
                async with asyncio.timeout(timeout_s):
                    line = await process.stdout.readline()
            except TimeoutError:
                self._end()
                return TOO_LONG
            if not line.endswith(b"\n"):
                self._end()
                return ENDED
            if is_value:
                answers.append(json.loads(line))
        return None

    async def _started(self) -> asyncio.subprocess.Process:
        if len(self._defined) >= MOST_CODECS:
            self._end()
        if self._process is None or self._process.returncode is not None:
            self._end()
            await self._wait_for_killed()
            if self._is_closed:
                raise WorkerClosedError
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "fencepost.schemas.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=2 * LARGEST_ANSWER_BYTES,
            )
        return self._process

    def _definition(self, schema: Schema) -> bytes | None:
        """The line that makes a schema known to the process; None if it knows it."""
        if schema in self._defined:
            return None
        name = self._defined[schema] = str(len(self._defined))
        return json.dumps({"define": name, "schema": schema.to_json()}).encode() + b"\n"

    def _line(self, order: Order) -> bytes:
        line: dict[str, Any] = {"schema": self._defined[order.schema]}
        if order.content is not None:
            line |= {"content": base64.b64encode(order.content).decode(), "indexes": order.indexes}
        else:
            line |= {"value": order.value, "message": order.message}
        return json.dumps(line).encode() + b"\n"

    def _end(self) -> None:
        process, self._process = self._process, None
        self._defined = {}
        if process is not None:
            if process.returncode is None:
                process.kill()
            self._killed.append(process)

    async def _wait_for_killed(self) -> None:
        """Wait until the ended processes and their pipes are gone: a loop that closes before leaves them open."""
        while self._killed:
            await self._killed[-1].communicate()
            self._killed.pop()

    async def close(self) -> None:
        """End the process and wait until it is gone, as those before it."""
        self._is_closed = True
        self._end()
        async with self._lock:
            self._end()  # one that was being started
            await self._wait_for_killed()
