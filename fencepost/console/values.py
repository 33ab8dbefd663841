"""Keys, values and headers of records as they may leave the console's server.

Every record that goes out (a page, its JSON, a download, a hit of a search) goes through `Values.show`, and filters
look at what it returns: what is not shown must not be found either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.console.reading.internal_records import decoded
from fencepost.protocol.checked_json import JsonError, parse
from fencepost.protocol.record_batch import Record

FORMATS: Final = ("text", "json", "hex")


@dataclass(frozen=True)
class Part:
    """A key, or a value, or a header's value.

    text: None for null. schema: what it was decoded by, if so. note: why it is not decoded, or what is hidden, if so.
    """

    text: str | None
    schema: str = ""
    note: str = ""


@dataclass(frozen=True)
class Shown:
    """What may leave the server of a record. record: its bytes, in place of those that are hidden the text for them."""

    record: Record
    key: Part
    value: Part
    headers: tuple[tuple[str, Part], ...]

    def pieces(self) -> Iterable[bytes]:
        """What a search for text looks at: the bytes, and what they were decoded to."""
        yield self.record.key or b""
        yield self.record.value or b""
        for name, value in self.record.headers:
            yield name.encode()
            yield value or b""
        for part in (self.key, self.value):
            if part.schema and part.text is not None:
                yield part.text.encode()


class Values:
    """How this console shows records."""

    async def show(
        self, topic: str, records: Sequence[Record], shown_format: str = "text", *, unmasked: bool = False
    ) -> list[Shown]:
        """Return what may be shown of records of a topic, in their order.

        shown_format: one of FORMATS. unmasked: for who may see what the rules hide.
        """
        del unmasked  # There are no rules yet.
        return [_show(topic, record, shown_format) for record in records]


def _show(topic: str, record: Record, shown_format: str) -> Shown:
    texts = decoded(topic, record.key, record.value) if shown_format != "hex" else None
    key, value = texts or (in_format(record.key, shown_format), in_format(record.value, shown_format))
    headers = tuple((name, Part(in_format(content, "text"))) for name, content in record.headers)
    return Shown(record, Part(key), Part(value), headers)


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
