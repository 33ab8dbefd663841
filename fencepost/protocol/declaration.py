"""Declaration of messages: one class for all versions, with a version range on each field that not all versions have.

`@message` and `@struct` turn a class body into a slotted class with a constructor, equality and a readable repr, and
keep its fields as data (`schema_of`). Readers, writers, ApiVersions, the protocol-support page and the tests'
strategies derive from that.
Source: the semantics of Kafka's message definitions (clients/src/main/resources/common/message/README.md); KIP-482 for
tagged fields.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, dataclass_transform, get_args, get_origin

from fencepost.protocol.primitives import BOOL, BYTES, STRING, FixedWidth, VariableWidth

Class = TypeVar("Class", bound=type)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends inclusive; empty if `first > last`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Read Kafka's notation: `"3+"`, `"0-5"`, `"4"` or `"none"`."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), HIGHEST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))


HIGHEST_VERSION = 0x7FFF
NO_VERSIONS = Versions(1, 0)

NULL_STRUCT, NULL_TAGGED_STRUCT = -1, 0
"""The byte in place of a struct that is None; 1 precedes one that is present. Source: Kafka's generator."""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """The wire type of a list."""

    element: "WireType"


@dataclass(frozen=True, slots=True)
class StructOf:
    """The wire type of a nested struct, declared by the class `python_class`."""

    python_class: type[Any]


WireType: TypeAlias = FixedWidth | VariableWidth | ArrayOf | StructOf


@dataclass(frozen=True, slots=True)
class Field:
    """One field as declared. `tagged`: the versions in which it is tagged field number `tag`."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    default: Any


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """Arguments of `field(...)`, kept until the class is made."""

    default: Any
    versions: str
    nullable: str | None
    tag: int | None
    tagged: str | None


FIRST_OWN_TAG = 10_000
"""Tagged fields from here on are not Kafka's. A client that does not know them skips them, as KIP-482 wants."""


def field(
    *,
    default: Value,
    versions: str = "0+",
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
) -> Value:
    """Declare a field that needs more than a default.

    versions: those that have the field; in others a reader sets the default and a writer leaves it out.
    nullable: those in which it may be None, if not in all; the annotation is `T | None` either way.
    tag:      the field's number among the tagged fields.
    tagged:   the versions in which it is tagged; by default all that have it.
    """
    return FieldOptions(default, versions, nullable, tag, tagged)  # type: ignore[return-value]  # replaced by @message


class StructSchema:
    """The fields of a declared class, resolved on first use: a module may use classes that it defines later."""

    def __init__(self, python_class: type[Any], options: dict[str, FieldOptions], annotations: dict[str, Any]) -> None:
        self.python_class = python_class
        self.name = python_class.__name__
        self._options = options
        self._annotations = annotations
        self._fields: tuple[Field, ...] | None = None
        self._values: Callable[[Any], Any] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in the order of the wire."""
        if self._fields is None:
            namespace = vars(sys.modules[self.python_class.__module__])
            self._fields = tuple(
                _resolve_field(name, self._annotations[name], options, namespace)
                for name, options in self._options.items()
            )
        return self._fields

    @property
    def defaults(self) -> Iterator[tuple[str, Any]]:
        """The names of the fields with their defaults, in the order of the wire."""
        for name, options in self._options.items():
            yield name, options.default

    @property
    def values(self) -> Callable[[Any], Any]:
        """A function from an instance to its values; equal instances have equal values."""
        if self._values is None:
            self._values = attrgetter(*self._options) if self._options else _no_values
        return self._values


class MessageSchema(StructSchema):
    """Schema of a message: a request, a response, or a key or value of an internal topic."""

    def __init__(
        self,
        python_class: type[Any],
        options: dict[str, FieldOptions],
        annotations: dict[str, Any],
        *,
        api_key: int,
        versions: Versions,
        flexible: Versions,
    ) -> None:
        super().__init__(python_class, options, annotations)
        self.api_key = api_key
        self.versions = versions
        self.flexible = flexible

    @property
    def is_request(self) -> bool:
        return self.name.endswith("Request")

    def all_fields(self) -> Iterator[Field]:
        """The fields of the message and of all structs inside it."""
        pending: list[StructSchema] = [self]
        while pending:
            for field in pending.pop().fields:
                yield field
                inner = field.type
                while isinstance(inner, ArrayOf):
                    inner = inner.element
                if isinstance(inner, StructOf):
                    pending.append(struct_schema_of(inner.python_class))


SCHEMA_ATTRIBUTE = "__message_schema__"


def schema_of(python_class: type[Any]) -> MessageSchema:
    """The schema of a class declared with `@message`."""
    schema = getattr(python_class, SCHEMA_ATTRIBUTE, None)
    if not isinstance(schema, MessageSchema):
        raise TypeError(f"{python_class.__name__} is not declared with @message")
    return schema


def struct_schema_of(python_class: type[Any]) -> StructSchema:
    """The schema of a class declared with `@struct` or `@message`."""
    schema = getattr(python_class, SCHEMA_ATTRIBUTE, None)
    if not isinstance(schema, StructSchema):
        raise TypeError(f"{python_class.__name__} is not declared with @struct or @message")
    return schema


@dataclass_transform(field_specifiers=(field,))
def message(*, versions: str, flexible: str = "none", key: int = -1) -> Callable[[Class], Class]:
    """Declare a message.

    versions: all that can be read and written, e.g. `"0-5"`.
    flexible: those with compact lengths and tagged fields (KIP-482), e.g. `"3+"`.
    key:      the API key; -1 if it is no request or response.
    The class gets the attributes `api_key`, `minimum_version` and `maximum_version`.
    """

    def declare(declared: Class) -> Class:
        python_class, options, annotations = _make_class(declared)
        valid = Versions.parse(versions)
        schema = MessageSchema(
            python_class, options, annotations, api_key=key, versions=valid, flexible=Versions.parse(flexible)
        )
        setattr(python_class, SCHEMA_ATTRIBUTE, schema)
        for attribute, value in (("api_key", key), ("minimum_version", valid.first), ("maximum_version", valid.last)):
            setattr(python_class, attribute, value)
        return python_class

    return declare


@dataclass_transform(field_specifiers=(field,))
def struct(declared: Class) -> Class:
    """Declare a struct nested in messages; it has the versions and flexibility of the message around it."""
    python_class, options, annotations = _make_class(declared)
    setattr(python_class, SCHEMA_ATTRIBUTE, StructSchema(python_class, options, annotations))
    return python_class


def shared_default(instance: Any) -> Any:
    """Return an equal instance that refuses changes: the default value that all messages with this struct share."""
    python_class = type(instance)
    frozen_class = python_class.__dict__.get("__frozen_class__")
    if frozen_class is None:
        namespace = {
            "__slots__": (),
            "__setattr__": _refuse_change,
            "__reduce__": _without_construction,
            "__module__": python_class.__module__,
            "__doc__": python_class.__doc__,
        }
        frozen_class = type(python_class.__name__, (python_class,), namespace)
        python_class.__frozen_class__ = frozen_class
    frozen = object.__new__(frozen_class)
    for name in python_class.__slots__:
        object.__setattr__(frozen, name, getattr(instance, name))
    return frozen


def _without_construction(self: Any) -> tuple[Any, tuple[Any, ...]]:
    """Make an equal instance that accepts changes: the copy of a shared default for `copy` and `pickle`."""
    python_class = struct_schema_of(type(self)).python_class
    return python_class, tuple(getattr(self, name) for name in python_class.__slots__)


def _refuse_change(self: Any, name: str, value: Any) -> None:
    raise AttributeError(
        f"{name}: this {type(self).__name__} is a shared default value; assign a new one to the field instead"
    )


def _make_class(declared: Class) -> tuple[Class, dict[str, FieldOptions], dict[str, Any]]:
    """Rebuild the declared class with slots; return it with the options and the annotations of its fields."""
    annotations = declared.__annotations__
    namespace = {name: value for name, value in vars(declared).items() if name not in ("__dict__", "__weakref__")}
    options: dict[str, FieldOptions] = {}
    for name in annotations:
        if name not in namespace:
            raise TypeError(f"{declared.__name__}.{name} has no default; every field of a message has one")
        given = namespace.pop(name)
        if not isinstance(given, FieldOptions):
            given = FieldOptions(given, "0+", None, None, None)
        if hasattr(type(given.default), SCHEMA_ATTRIBUTE):
            given = FieldOptions(shared_default(given.default), given.versions, given.nullable, given.tag, given.tagged)
        options[name] = given
    names = tuple(annotations)
    namespace["__slots__"] = names
    namespace["__match_args__"] = names
    namespace["__init__"] = _construct_first
    namespace["__eq__"] = _equal
    namespace["__hash__"] = None
    namespace["__repr__"] = _shown
    python_class = type(declared)(declared.__name__, declared.__bases__, namespace)
    python_class.__qualname__ = declared.__qualname__
    return python_class, options, annotations


# The methods of all declared classes. They find their data in the schema of the class: as closures of each class they
# would take a megabyte.


def _construct_first(self: Any, *args: Any, **kwargs: Any) -> None:
    """Compile the constructor and replace this one by it: most of several hundred classes are never instantiated."""
    schema = struct_schema_of(type(self))
    constructor = _make_constructor(schema)
    schema.python_class.__init__ = constructor  # the constructor that replaces this one
    constructor(self, *args, **kwargs)


def _equal(self: Any, other: object) -> Any:
    schema = struct_schema_of(type(self))
    if getattr(type(other), SCHEMA_ATTRIBUTE, None) is not schema:
        return NotImplemented
    values = schema.values
    return values(self) == values(other)


def _no_values(instance: Any) -> None:
    """The values of an instance without fields."""


def _shown(self: Any) -> str:
    """Show the fields that differ from their defaults; records only as a size."""
    parts = []
    for name, default in struct_schema_of(type(self)).defaults:
        value = getattr(self, name, default)
        if value != default:
            shown = f"<{value.nbytes} bytes>" if isinstance(value, memoryview) else repr(value)
            parts.append(f"{name}={shown}")
    return f"{type(self).__name__}({', '.join(parts)})"


def _make_constructor(schema: StructSchema) -> Any:
    """Write the constructor as source: plain attribute stores are several times faster than a loop over names."""
    namespace: dict[str, Any] = {}
    parameters = ["self"]
    body = []
    for name, default in schema.defaults:
        namespace[f"default_{name}"] = default
        parameters.append(f"{name}=default_{name}")
        fresh = f"[] if {name} is default_{name} else " if isinstance(default, list) else ""
        body.append(f"    self.{name} = {fresh}{name}")
    source = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or "    pass")
    exec(source, namespace)
    constructor = namespace["__init__"]
    constructor.__qualname__ = f"{schema.python_class.__qualname__}.__init__"
    constructor.__module__ = schema.python_class.__module__
    return constructor


def _resolve_field(name: str, annotation: Any, options: FieldOptions, namespace: dict[str, Any]) -> Field:
    if isinstance(annotation, str):
        annotation = eval(annotation, namespace)  # the module's own text: `from __future__ import annotations`
    optional = get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation)
    if optional:
        annotation = Union[tuple(part for part in get_args(annotation) if part is not NoneType)]  # noqa: UP007  # made at run time
    versions = Versions.parse(options.versions)
    nullable = (Versions.parse(options.nullable) if options.nullable else versions) if optional else NO_VERSIONS
    tagged = NO_VERSIONS if options.tag is None else Versions.parse(options.tagged or options.versions)
    return Field(name, _wire_type(annotation), versions, nullable, options.tag, tagged, options.default)


def _wire_type(annotation: Any) -> WireType:
    if get_origin(annotation) is Annotated:
        wire_type = get_args(annotation)[1]
        if isinstance(wire_type, FixedWidth | VariableWidth):
            return wire_type
    if get_origin(annotation) is list:
        return ArrayOf(_wire_type(get_args(annotation)[0]))
    if isinstance(annotation, type):
        if hasattr(annotation, SCHEMA_ATTRIBUTE):
            return StructOf(annotation)
        plain: dict[type[Any], WireType] = {str: STRING, bytes: BYTES, bool: BOOL}
        if annotation in plain:
            return plain[annotation]
    raise TypeError(f"{annotation!r} has no wire type; an integer needs its width, e.g. int32")
