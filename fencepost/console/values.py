"""Keys, values and headers of records as they may leave the console's server.

Every record that goes out (a page, its JSON, a download, a hit of a search) goes through `Values.show`, and filters
look at its results: a search must not find a hidden text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fencepost.console.reading.internal_records import decoded
from fencepost.protocol.checked_json import JsonError, parse
from fencepost.protocol.record_batch import Record
from fencepost.schemas.masking import HIDDEN, TopicRules

if TYPE_CHECKING:
    from fencepost.console.options import ClusterOptions
    from fencepost.schemas.decoding import Decoded, Decoder

FORMATS: Final = ("text", "json", "hex")
MASKED: Final = "masked"
UNREADABLE: Final = "hidden as a whole: a rule hides a part of it, and it cannot be read"


@dataclass(frozen=True)
class Part:
    """A key, or a value, or a header's value.

    text: None for null. schema: the one that it was read by, as `Avro orders-value version 3`. note: why it was
    not read, or that something is hidden. data: the value that was read or masked, as JSON can have it, else None.
    """

    text: str | None
    schema: str = ""
    note: str = ""
    data: Any = None


@dataclass(frozen=True)
class Shown:
    """The parts of a record that may leave the server. record: its bytes; hidden ones are replaced by their text."""

    record: Record
    key: Part
    value: Part
    headers: tuple[tuple[str, Part], ...]

    def pieces(self) -> Iterable[bytes]:
        """The texts for a search: the bytes, and the values that were read."""
        yield self.record.key or b""
        yield self.record.value or b""
        for name, value in self.record.headers:
            yield name.encode()
            yield value or b""
        for part in (self.key, self.value):
            if part.schema and part.text is not None:
                yield part.text.encode()


class Values:
    """How this console shows records, for one event loop. Without options, as they are."""

    def __init__(self, options: ClusterOptions | None = None) -> None:
        self._rules = None if options is None else options.masking
        self._decoder: Decoder | None = None
        if options is not None and options.registry is not None:
            from fencepost.schemas.decoding import Decoder
            from fencepost.schemas.registry import Registry

            self._decoder = Decoder(Registry(options.registry))

    def hides_the_same(self, topic: str, other: str) -> bool:
        """Whether the rules hide of one topic all that they hide of another one: a copy must not show more."""
        return self._rules is None or set(self._rules.of(topic).found) <= set(self._rules.of(other).found)

    async def close(self) -> None:
        if self._decoder is not None:
            await self._decoder.close()

    async def show(
        self, topic: str, records: Sequence[Record], shown_format: str = "text", *, unmasked: bool = False
    ) -> list[Shown]:
        """Return the parts that may be shown of records of a topic, in their order.

        shown_format: one of FORMATS. unmasked: whether to leave out the rules.
        """
        rules = None if unmasked or self._rules is None else self._rules.of(topic)
        read = await self._read(topic, records)
        return [
            _Showing(topic, shown_format, rules).show(record, key, value)
            for record, (key, value) in zip(records, read, strict=True)
        ]

    def header(self, topic: str, name: str, text: str) -> str:
        """The text of a header of a record, or the text in its place if a rule hides it."""
        hidden = None if self._rules is None else self._rules.of(topic).header(name, text)
        return text if hidden is None else hidden

    async def _read(self, topic: str, records: Sequence[Record]) -> list[tuple[Decoded | None, Decoded | None]]:
        """Keys and values, read by their schemas; None for those without."""
        if self._decoder is None:
            return [(None, None)] * len(records)
        from fencepost.schemas.decoding import Item

        items = [
            Item(topic, part, content, record.headers)
            for record in records
            for part, content in (("key", record.key), ("value", record.value))
            if content is not None
        ]
        results = iter(await self._decoder.decode(items))
        return [
            (None if record.key is None else next(results), None if record.value is None else next(results))
            for record in records
        ]


@dataclass(frozen=True)
class _Showing:
    topic: str
    shown_format: str
    rules: TopicRules | None

    def show(self, record: Record, read_key: Decoded | None, read_value: Decoded | None) -> Shown:
        internal = decoded(self.topic, record.key, record.value) if self.shown_format != "hex" else None
        key_text, value_text = internal or (None, None)
        key, key_bytes = self._part("key", record.key, read_key, key_text)
        value, value_bytes = self._part("value", record.value, read_value, value_text)
        headers, header_bytes = [], []
        for name, content in record.headers:
            part, shown = self._header(name, content)
            headers.append((name, part))
            header_bytes.append((name, shown))
        outgoing = record._replace(key=key_bytes, value=value_bytes, headers=tuple(header_bytes))
        return Shown(outgoing, key, value, tuple(headers))

    def _part(
        self, place: str, content: bytes | None, read: Decoded | None, internal: str | None
    ) -> tuple[Part, bytes | None]:
        """A key or a value, and its bytes as they may go out. internal: the text of an internal topic's record."""
        if content is None:
            return Part(None), None
        schema = "" if read is None else read.schema
        if self.rules is not None and self.rules.concern(place):
            part = self._masked(place, content, read)
            return part, (part.text or "").encode("utf-8", "surrogatepass")
        if read is not None and read.has_value and self.shown_format != "hex":
            return Part(self._text(read.value), schema, data=read.value), content
        note = read.reason if read is not None and not read.has_value else ""
        return Part(in_format(content, self.shown_format) if internal is None else internal, schema, note), content

    def _masked(self, place: str, content: bytes, read: Decoded | None) -> Part:
        """Its bytes do not go out at all: they may hold more than was read of them."""
        assert self.rules is not None
        schema = "" if read is None else read.schema
        kind = self.rules.of_whole(place)
        if kind is not None:
            text = self.rules.rules.masked(
                kind, in_format(content, "text") if read is None or not read.has_value else read.value
            )
            return Part(text, schema, MASKED, text)
        try:
            if read is not None and not read.has_value:
                # The reasons of libraries may quote the value.
                raise JsonError("it does not fit its schema" if schema else read.reason)
            found = read.value if read is not None else parse(content, most_bytes=len(content) + 1)
        except JsonError as error:
            return Part(HIDDEN, schema, f"{UNREADABLE}: {error}", HIDDEN)
        masked = self.rules.read(place, found)
        return Part(self._text(masked), schema, MASKED if masked != found else "", masked)

    def _header(self, name: str, content: bytes | None) -> tuple[Part, bytes | None]:
        text = in_format(content, "text")
        hidden = None if self.rules is None or text is None else self.rules.header(name, text)
        return (Part(text), content) if hidden is None else (Part(hidden, note=MASKED), hidden.encode())

    def _text(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        return json.dumps(value, indent=2 if self.shown_format == "json" else None, ensure_ascii=False)


def in_format(content: bytes | None, shown_format: str) -> str | None:
    """Return bytes as text, JSON in lines, or hex. Bytes that are no text become hex: nothing is guessed."""
    if content is None:
        return None
    if shown_format == "hex":
        return content.hex(" ")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content.hex(" ")
    if shown_format == "json":
        try:
            return json.dumps(parse(text), indent=2, ensure_ascii=False)
        except JsonError:
            return text
    return text
