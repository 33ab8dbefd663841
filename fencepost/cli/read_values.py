"""`consume --key-format`, `--value-format`: records with their keys and values read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fencepost.cli.records import fields_of
from fencepost.cli.schema_options import needs_registry, registry_option
from fencepost.cli.value_formats import FORMATS, STRING, WITH_SCHEMA, read_plain, text_of

if TYPE_CHECKING:
    from fencepost.schemas.decoding import Decoder

Command = TypeVar("Command", bound=Callable[..., Any])
_KEY: Final = "fencepost.read_formats"
REGISTRY_TIMEOUT_S: Final = 15.0
MOST_NAMED: Final = 10
"""Records that were not read, on standard error; the others are counted."""


def read_options(command: Command) -> Command:
    """Add `--key-format`, `--value-format` and `--schema-registry`. `current_reader` reads them."""
    for part in ("value", "key"):
        command = click.option(
            f"--{part}-format",
            type=click.Choice(FORMATS),
            expose_value=False,
            callback=_take,
            help=f"How to read {part}s; schema: by whatever schema they name."
            if part == "key"
            else "The same for values.",
        )(command)
    return registry_option(command)


def _take(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    context.meta.setdefault(_KEY, {})[str(parameter.name).removesuffix("_format")] = name or STRING


def current_reader() -> Reader | None:
    """The reader of the running command; None if it prints bytes as they are. Raises ClickException."""
    context = click.get_current_context()
    formats: dict[str, str] = context.meta.get(_KEY, {})
    if all(one == STRING for one in formats.values()):
        return None
    decoder = None
    named = next((f"--{part}-format {one}" for part, one in formats.items() if one in WITH_SCHEMA), None)
    if named is not None:
        options = needs_registry(named)
        from fencepost.schemas.decoding import Decoder
        from fencepost.schemas.registry import Registry

        decoder = Decoder(Registry(options))
    reader = Reader(formats["key"], formats["value"], decoder)
    context.call_on_close(reader.close)
    return reader


def refuse_formats(option: str) -> None:
    """Raises UsageError if the running command is to read keys or values."""
    formats = click.get_current_context().meta.get(_KEY, {})
    if any(one != STRING for one in formats.values()):
        raise click.UsageError(f"{option} goes with neither --key-format nor --value-format")


@dataclass(frozen=True)
class ReadPart:
    """A key or a value. text: the bytes to print. value: as JSON can have it, if has_value; else reason says why."""

    text: bytes | None
    value: Any = None
    has_value: bool = False
    schema: str = ""
    reason: str = ""


@dataclass(frozen=True)
class ReadRecord:
    """A consumed record, with texts in place of bytes."""

    record: Any
    read_key: ReadPart
    read_value: ReadPart

    @property
    def key(self) -> bytes | None:
        return self.read_key.text

    @property
    def value(self) -> bytes | None:
        return self.read_value.text

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record, name)

    def to_json(self) -> str:
        """As `records.to_json`, with values in place of texts, and the schemas, or reasons, beside them."""
        fields = fields_of(self.record)
        for name, part in (("key", self.read_key), ("value", self.read_value)):
            if part.has_value:
                fields[name] = part.value
            if part.schema:
                fields[f"{name}_schema"] = part.schema
            if part.reason:
                fields[f"{name}_error"] = part.reason
        return json.dumps(fields, ensure_ascii=False)


class Reader:
    """Reads keys and values of consumed records."""

    def __init__(self, key_format: str, value_format: str, decoder: Decoder | None = None) -> None:
        self._formats = {"key": key_format, "value": value_format}
        self._decoder = decoder
        self._runner = asyncio.Runner()
        self._unread_count = 0

    def close(self) -> None:
        if self._unread_count:
            click.echo(f"keys and values not read: {self._unread_count}", err=True)
        if self._decoder is not None:
            self._runner.run(self._decoder.close())
        self._runner.close()

    def read(self, records: Sequence[Any]) -> list[ReadRecord]:
        keys, values = (self._read(part, records) for part in ("key", "value"))
        return [ReadRecord(*one) for one in zip(records, keys, values, strict=True)]

    def _read(self, part: str, records: Sequence[Any]) -> list[ReadPart]:
        name = self._formats[part]
        contents: list[bytes | None] = [getattr(record, part) for record in records]
        if name == STRING:
            return [ReadPart(one) for one in contents]
        if name in WITH_SCHEMA:
            parts = self._by_schema(part, records, contents)
        else:
            parts = [_plain(name, one) for one in contents]
        for record, one in zip(records, parts, strict=True):
            if one.reason:
                self._unread_count += 1
                if self._unread_count <= MOST_NAMED:
                    place = f"{record.topic}-{record.partition} @{record.offset}"
                    click.echo(f"{place}: its {part} is not read: {one.reason}", err=True)
        return parts

    def _by_schema(self, part: str, records: Sequence[Any], contents: Sequence[bytes | None]) -> list[ReadPart]:
        from fencepost.schemas.decoding import Item

        assert self._decoder is not None
        items = [
            Item(record.topic, part, content, record.headers or ())
            for record, content in zip(records, contents, strict=True)
            if content is not None
        ]
        found = iter(self._runner.run(self._decoder.decode(items, REGISTRY_TIMEOUT_S)) if items else [])
        return [ReadPart(None) if content is None else self._part(part, content, next(found)) for content in contents]

    def _part(self, part: str, content: bytes, found: Any) -> ReadPart:
        wanted = self._formats[part]
        if found is None:
            return ReadPart(content, reason="it names no schema")
        kind = "" if found.kind is None else found.kind.title.lower().replace(" ", "-")
        if kind and wanted not in ("schema", kind):
            return ReadPart(content, schema=found.schema, reason=f"it is {found.kind.title}, not {wanted}")
        if not found.has_value:
            return ReadPart(content, schema=found.schema, reason=found.reason)
        return ReadPart(text_of(found.value).encode(), found.value, True, found.schema)


def _plain(name: str, content: bytes | None) -> ReadPart:
    if content is None:
        return ReadPart(None)
    try:
        value = read_plain(name, content)
    except ValueError as error:
        return ReadPart(content, reason=str(error))
    return ReadPart(text_of(value).encode(), value, True)
