"""`produce --key-format`, `--value-format`: keys and values in the form that consumers expect."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fencepost.cli.records import Content, to_bytes_of
from fencepost.cli.schema_options import needs_registry, registry_option
from fencepost.cli.value_formats import FORMATS, STRING, WITH_SCHEMA, value_in, write_plain

if TYPE_CHECKING:
    from fencepost.schemas.registry import Registered, Registry
    from fencepost.schemas.schema import Kind

Command = TypeVar("Command", bound=Callable[..., Any])
_KEY: Final = "fencepost.written_formats"
FILE: Final = "file:"
_NAMED: Final = re.compile(r"(?P<subject>.+?)(?:@(?P<version>[1-9][0-9]{0,8}))?(?:#(?P<message>[\w.]+))?", re.DOTALL)


def write_options(command: Command) -> Command:
    """Add the formats and schemas of keys and values, and `--schema-registry`. `current_writer` reads them."""
    for part in ("value", "key"):
        other = "" if part == "key" else "The same for values: "
        command = click.option(
            f"--{part}-schema",
            metavar="SCHEMA",
            expose_value=False,
            callback=_take,
            help=f"{other}id, SUBJECT, SUBJECT@VERSION, or file:PATH to register one; #MESSAGE behind it names a "
            f"Protobuf message. If not given, the latest of TOPIC-{part}.",
        )(command)
        command = click.option(
            f"--{part}-format",
            type=click.Choice(FORMATS),
            expose_value=False,
            callback=_take,
            help=f"Form of {part}s; with a schema, a line has the {part} as JSON.",
        )(command)
    return registry_option(command)


def _take(context: click.Context, parameter: click.Parameter, text: str | None) -> None:
    context.meta.setdefault(_KEY, {})[parameter.name] = text


def current_writer(topic: str) -> ValueWriter:
    """The writer of the running command. Raises ClickException."""
    from fencepost.schemas.schema import SchemaError

    context = click.get_current_context()
    taken: dict[str, str | None] = context.meta.get(_KEY, {})
    writer = ValueWriter(taken.get("key_format") or STRING, taken.get("value_format") or STRING)
    context.call_on_close(writer.close)
    for part in ("key", "value"):
        name, schema = taken.get(f"{part}_format") or STRING, taken.get(f"{part}_schema")
        if name not in WITH_SCHEMA:
            if schema is not None:
                raise click.UsageError(f"--{part}-schema needs --{part}-format, one of {', '.join(WITH_SCHEMA)}")
            continue
        options = needs_registry(f"--{part}-format {name}")
        try:
            writer.use(part, options, schema or f"{topic}-{part}", f"{topic}-{part}")
        except SchemaError as error:
            raise click.ClickException(f"the schema of {part}s: {error}") from None
    return writer


class ValueWriter:
    """Makes bytes of keys and values; all methods that make some raise ValueError."""

    def __init__(self, key_format: str, value_format: str) -> None:
        self._formats = {"key": key_format, "value": value_format}
        self._runner = asyncio.Runner()
        self._registry: Registry | None = None
        self._worker: Any = None
        self._schemas: dict[str, tuple[Registered, str]] = {}

    def close(self) -> None:
        for one in (self._worker, self._registry):
            if one is not None:
                self._runner.run(one.close())
        self._runner.close()

    def use(self, part: str, options: Any, schema: str, subject: str) -> None:
        """Take a schema for keys or values, as `--value-schema` names it. Raises SchemaError."""
        from fencepost.schemas.registry import Registry
        from fencepost.schemas.schema import SchemaError
        from fencepost.schemas.workers import Worker

        if self._registry is None:
            self._registry, self._worker = Registry(options), Worker()
        wanted = self._formats[part]
        found, message = self._runner.run(_find(self._registry, schema, subject, wanted))
        kind = found.schema.kind.title.lower().replace(" ", "-")
        if wanted not in ("schema", kind):
            raise SchemaError(f"{schema} is {found.schema.kind.title}, not {wanted}")
        self._schemas[part] = found, message

    def of_line(self, content: Content) -> Content:
        """The content of a line whose key and value are text."""
        return content._replace(key=self.of_text("key", content.key), value=self.of_text("value", content.value))

    def of_text(self, part: str, text: bytes | None) -> bytes | None:
        """The bytes of a key or a value that is text."""
        name = self._formats[part]
        if text is None or name == STRING:
            return text
        return self._bytes(part, value_in(name, text))

    def of_json(self, part: str, value: Any) -> bytes | None:
        """The bytes of a key or a value in an object of `--json`."""
        if value is None or self._formats.get(part, STRING) == STRING:
            return to_bytes_of(part, value)
        return self._bytes(part, value)

    def _bytes(self, part: str, value: Any) -> bytes:
        from fencepost.schemas.wire import with_prefix
        from fencepost.schemas.workers import Order

        name = self._formats[part]
        try:
            if name not in WITH_SCHEMA:
                return write_plain(name, value)
            found, message = self._schemas[part]
            [answer] = self._runner.run(self._worker.carry_out([Order(found.schema, value=value, message=message)]))
            if "error" in answer:
                raise ValueError(answer["error"])
        except ValueError as error:
            raise ValueError(f"the {part} cannot be written: {error}") from None
        assert found.schema_id is not None
        indexes = answer["indexes"]
        content = base64.b64decode(answer["content"])
        return with_prefix(found.schema_id, None if indexes is None else tuple(indexes), content)


async def _find(registry: Registry, schema: str, subject: str, wanted: str) -> tuple[Registered, str]:
    """A schema and the name of a message, as `--value-schema` names them. Raises SchemaError."""
    from fencepost.schemas.schema import SchemaError

    found = _NAMED.fullmatch(schema)
    if found is None:
        raise SchemaError("its name is empty")
    name, version, message = found["subject"], found["version"], found["message"] or ""
    if name.startswith(FILE):
        kind, text = _of_file(name.removeprefix(FILE), wanted)
        return await registry.register(subject, kind, text), message
    if name.isascii() and name.isdigit() and len(name) < 10 and version is None:
        return await registry.by_id(int(name)), message
    return await registry.by_subject(name, None if version is None else int(version)), message


def _of_file(path: str, wanted: str) -> tuple[Kind, str]:
    """Kind and text of a schema in a file. Raises SchemaError."""
    from fencepost.schemas.schema import Kind, SchemaError

    kinds = {one.title.lower().replace(" ", "-"): one for one in Kind}
    if wanted not in kinds:
        raise SchemaError(f"a file needs a format, one of {', '.join(kinds)}")
    try:
        with open(path, encoding="utf-8") as file:
            return kinds[wanted], file.read()
    except OSError as error:
        raise SchemaError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path} cannot be read: it is not UTF-8 text") from None
