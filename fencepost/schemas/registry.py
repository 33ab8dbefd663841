"""Asks a schema registry by Confluent's HTTP API. Its answers are bounded and checked: they are data of others.

A schema's id stands for one schema for ever, so it is read once. That an id is unknown, or that the registry
does not answer, is remembered for a short time, so that a page of many records asks once.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from fencepost.protocol.checked_json import INT32_MAX, Fields, JsonError, object_of, parse, shown
from fencepost.schemas.options import RegistryOptions
from fencepost.schemas.schema import LONGEST_TEXT, Kind, Schema, SchemaError, Subject
from fencepost.schemas.wire import Identity

logger = logging.getLogger("fencepost.schemas")

CONNECT_TIMEOUT_S: Final = 2.0
ANSWER_TIMEOUT_S: Final = 5.0
"""From the question to the last byte."""
LARGEST_ANSWER_BYTES: Final = 4 << 20
MOST_AT_ONCE: Final = 8
MOST_KNOWN: Final = 1_000
MOST_REFERENCES: Final = 100
UNKNOWN_FOR_S: Final = 30.0
UNREACHABLE_FOR_S: Final = 5.0
TYPE: Final = "application/vnd.schemaregistry.v1+json"


Answer = TypeVar("Answer")


class RegistryError(SchemaError):
    """The registry does not answer, or not in a usable way."""


class NotRegisteredError(SchemaError):
    """The registry has no such schema."""


@dataclass(frozen=True)
class Registered:
    """A schema of a registry. subjects: those of the schema, as the registry names them; it may name none."""

    schema: Schema
    subjects: tuple[Subject, ...] = ()
    schema_id: int | None = None

    def label(self, preferred: str) -> str:
        """As `Avro orders-value version 3`. preferred: the subject to name if it is one of them."""
        chosen = [one for one in self.subjects if one.name == preferred] or list(self.subjects[:1])
        names = "".join(f" {one.name} version {one.version}" for one in chosen[:1])
        return f"{self.schema.kind.title}{names or f' id {self.schema_id}'}"


class Registry:
    """One registry, for one event loop."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._http: httpx.AsyncClient | None = None
        self._known: OrderedDict[Identity, Registered] = OrderedDict()
        self._failures: OrderedDict[Identity, tuple[float, SchemaError]] = OrderedDict()
        self._unreachable: tuple[float, RegistryError] | None = None
        self._asked: dict[Identity, asyncio.Task[Registered | SchemaError]] = {}
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def find(self, identities: Sequence[Identity], timeout_s: float) -> dict[Identity, Registered | SchemaError]:
        """Return each schema, or why it is not to be had. A question that takes longer goes on without the caller."""
        found: dict[Identity, Registered | SchemaError] = {}
        waited: dict[Identity, asyncio.Task[Registered | SchemaError]] = {}
        for identity in dict.fromkeys(identities):
            now = self._at_hand(identity)
            if now is not None:
                found[identity] = now
            else:
                waited[identity] = self._ask(identity)
        if waited:
            await asyncio.wait(waited.values(), timeout=timeout_s)
        for identity, task in waited.items():
            late = RegistryError(f"the schema registry has not answered within {timeout_s:g} s")
            found[identity] = task.result() if task.done() and not task.cancelled() else late
        return found

    async def by_id(self, schema_id: int) -> Registered:
        """Raises SchemaError."""
        found = (await self.find([schema_id], 2 * ANSWER_TIMEOUT_S))[schema_id]
        if isinstance(found, SchemaError):
            raise found
        return found

    async def by_subject(self, subject: str, version: int | None = None) -> Registered:
        """Version None: the latest. Raises SchemaError."""
        fields = await self._get(f"subjects/{_quoted(subject)}/versions/{version or 'latest'}", _object)
        try:
            named = Subject(subject, fields.whole("version", 1, INT32_MAX))
            return Registered(await self._whole(fields), (named,), fields.whole("id", 0, INT32_MAX))
        except JsonError as error:
            raise _garbled(error) from None

    async def register(self, subject: str, kind: Kind, text: str) -> Registered:
        """Register a schema without references under a subject, if it is not there yet. Raises SchemaError."""
        order = {"schema": text} if kind is Kind.AVRO else {"schema": text, "schemaType": kind.value}
        fields = await self._get(f"subjects/{_quoted(subject)}/versions", _object, order)
        try:
            return Registered(Schema(kind, text), (), fields.whole("id", 0, INT32_MAX))
        except JsonError as error:
            raise _garbled(error) from None

    async def close(self) -> None:
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    # known schemas and failures

    def _at_hand(self, identity: Identity) -> Registered | SchemaError | None:
        known = self._known.get(identity)
        if known is not None:
            self._known.move_to_end(identity)
            return known
        failed = self._failures.get(identity)
        if failed is not None:
            if time.monotonic() < failed[0]:
                return failed[1]
            del self._failures[identity]
        return None

    def _ask(self, identity: Identity) -> asyncio.Task[Registered | SchemaError]:
        task = self._asked.get(identity)
        if task is None:
            task = self._asked[identity] = asyncio.create_task(self._learn(identity))
            task.add_done_callback(lambda _: self._asked.pop(identity, None))
        return task

    async def _learn(self, identity: Identity) -> Registered | SchemaError:
        try:
            found = await self._read(identity)
        except SchemaError as error:
            kept_s = UNREACHABLE_FOR_S if isinstance(error, RegistryError) else UNKNOWN_FOR_S
            _keep(self._failures, identity, (time.monotonic() + kept_s, error))
            return error
        except Exception:
            # The callers show the bytes; the log has the traceback.
            logger.exception("asking the schema registry for %s failed", identity)
            return RegistryError("asking the schema registry failed; the log has the reason")
        _keep(self._known, identity, found)
        return found

    async def _read(self, identity: Identity) -> Registered:
        place = f"schemas/ids/{identity}" if isinstance(identity, int) else f"schemas/guids/{identity}"
        fields, subjects = await asyncio.gather(self._get(place, _object), self._subjects(place))
        try:
            schema_id = identity if isinstance(identity, int) else fields.whole_or_none("id", 0, INT32_MAX)
            return Registered(await self._whole(fields), subjects, schema_id)
        except JsonError as error:
            raise _garbled(error) from None

    async def _subjects(self, place: str) -> tuple[Subject, ...]:
        """The names of a schema, which are good to have: without them it is shown all the same."""
        try:
            return await self._get(f"{place}/versions", _subjects_of)
        except SchemaError:
            return ()

    async def _whole(self, fields: Fields) -> Schema:
        """A schema with all that it refers to. Raises SchemaError, JsonError."""
        kind = Kind.AVRO if "schemaType" not in fields else fields.one_of_or_none("schemaType", Kind) or Kind.AVRO
        text = fields.text("schema")
        found: dict[str, str] = {}
        await self._refer(fields, found, {}, len(text))
        return Schema(kind, text, tuple(found.items()))

    async def _refer(self, fields: Fields, found: dict[str, str], seen: dict[str, tuple[str, int]], size: int) -> int:
        """Add the texts that a schema refers to, each after its own. Returns the size of all."""
        for one in (
            fields.objects("references") if "references" in fields and fields.value("references") is not None else ()
        ):
            name, subject = one.text("name"), one.text("subject")
            version = one.whole("version", -1, INT32_MAX)
            if name in seen:
                if seen[name] != (subject, version):
                    raise SchemaError(f"its schema refers to two schemas by the name {shown(name)}")
                continue
            seen[name] = subject, version
            if len(seen) > MOST_REFERENCES:
                raise SchemaError(f"its schema refers to more than {MOST_REFERENCES} others")
            place = f"subjects/{_quoted(subject)}/versions/{version if version > 0 else 'latest'}"
            other = await self._get(place, _object)
            text = other.text("schema")
            size = await self._refer(other, found, seen, size + len(text))
            if size > LONGEST_TEXT:
                raise SchemaError(f"its schema has more than {LONGEST_TEXT:,} characters with all that it refers to")
            found[name] = text
        return size

    # questions

    async def _get(self, place: str, read: Callable[[Any], Answer], order: dict[str, Any] | None = None) -> Answer:
        """Ask, and read the answer with `read`. Raises SchemaError."""
        async with self._slots:
            if self._unreachable is not None and time.monotonic() < self._unreachable[0]:
                raise self._unreachable[1]
            failure = None
            for url in self._options.urls:
                try:
                    async with asyncio.timeout(ANSWER_TIMEOUT_S):
                        return read(await self._exchange(f"{url}/{place}", order))
                except TimeoutError:
                    failure = RegistryError(f"{url} has not answered within {ANSWER_TIMEOUT_S:g} s")
                except httpx.HTTPError as error:
                    failure = RegistryError(f"{url} cannot be reached: {_reason(error)}")
                except JsonError as error:
                    raise _garbled(error) from None
            assert failure is not None
            self._unreachable = time.monotonic() + UNREACHABLE_FOR_S, failure
            raise failure

    async def _exchange(self, address: str, order: dict[str, Any] | None) -> Any:
        if self._http is None:
            self._http = self._client()
        method = "GET" if order is None else "POST"
        headers = {} if order is None else {"Content-Type": TYPE}
        async with self._http.stream(method, address, json=order, headers=headers) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST_ANSWER_BYTES:
                    raise JsonError(f"it has more than {LARGEST_ANSWER_BYTES:,} bytes")
        return _answer(response.status_code, bytes(body))

    def _client(self) -> httpx.AsyncClient:
        options = self._options
        headers = {"Accept": f"{TYPE}, application/json", "Accept-Encoding": "identity"}
        if options.token is not None:
            headers["Authorization"] = f"Bearer {options.token}"
        # No redirects: the password goes to the address that was named, and nowhere else. No proxies of the
        # environment, either: they are not meant for an address that a person names.
        return httpx.AsyncClient(
            auth=options.user,
            headers=headers,
            verify=options.tls or ssl.create_default_context(),
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=MOST_AT_ONCE),
            follow_redirects=False,
            trust_env=False,
        )


def _answer(status: int, body: bytes) -> Any:
    """The JSON of an answer. Raises SchemaError; JsonError: it is none."""
    if status == 404:
        raise NotRegisteredError("the schema registry does not have its schema")
    if status in (401, 403):
        raise RegistryError(
            "the schema registry refuses this name and password"
            if status == 401
            else "the schema registry refuses this user"
        )
    if 300 <= status < 400:
        raise RegistryError("the schema registry points to another address; name that one")
    if status >= 500:
        raise RegistryError(f"the schema registry failed with status {status}{_message(body)}")
    if status != 200:
        raise SchemaError(f"the schema registry refused with status {status}{_message(body)}")
    return parse(body, most_bytes=LARGEST_ANSWER_BYTES)


def _message(body: bytes) -> str:
    try:
        text = object_of(parse(body)).text("message")
    except JsonError:
        return ""
    return f": {' '.join(text.split())[:200]}"


def _object(answer: Any) -> Fields:
    return object_of(answer)


def _subjects_of(answer: Any) -> tuple[Subject, ...]:
    if not isinstance(answer, list):
        raise JsonError("it is not an array")
    fields = [object_of(one) for one in answer[:1_000]]
    return tuple(Subject(one.text("subject"), one.whole("version", 1, INT32_MAX)) for one in fields)


def _garbled(error: JsonError) -> RegistryError:
    return RegistryError(f"the answer of the schema registry cannot be used: {error}")


def _reason(error: httpx.HTTPError) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _keep(table: OrderedDict[Any, Any], name: Any, value: Any) -> None:
    table[name] = value
    if len(table) > MOST_KNOWN:
        table.popitem(last=False)
