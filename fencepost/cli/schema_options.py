"""Options of commands that read or write values with schemas: the registry, and rules for masking."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from fencepost.cli.client_properties import Properties, Property, WrongPropertiesError, secret
from fencepost.cli.client_security import current_properties

if TYPE_CHECKING:
    from fencepost.schemas.masking import Rules
    from fencepost.schemas.options import RegistryOptions

Command = TypeVar("Command", bound=Callable[..., Any])
_KEY: Final = "fencepost.schema_registry"
_MASKING_KEY: Final = "fencepost.masking"
URL: Final = "schema.registry.url"
USER: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"
_TLS: Final = "schema.registry.ssl."
_PREFIX: Final = "schema.registry."


def registry_option(command: Command) -> Command:
    """Add `--schema-registry`. The command does not get it: `current_registry` reads it."""
    return click.option(
        "--schema-registry",
        metavar="URL",
        expose_value=False,
        callback=_take,
        help="Schema registry with Confluent's API; several, with commas between them. Also the property "
        f"{URL}; {USER} and others of Kafka's clients for names and passwords.",
    )(command)


def _take(context: click.Context, _: click.Parameter, urls: str | None) -> None:
    context.meta[_KEY] = urls


def current_registry() -> RegistryOptions | None:
    """The registry of the running command; None if none is named. Raises ClickException, also for a missing library."""
    from fencepost.schemas.schema import SchemaError

    try:
        found = registry_of(current_properties(click.get_current_context()), click.get_current_context().meta.get(_KEY))
    except (WrongPropertiesError, SchemaError) as error:
        raise click.ClickException(str(error)) from None
    if found is not None:
        check_libraries()
    return found


def masking_option(command: Command) -> Command:
    """Add `--masking`. The command does not get it: `current_masking` reads it."""
    return click.option(
        "--masking",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        expose_value=False,
        callback=_take_masking,
        help="File of rules that hide parts of records, a line for each: TOPICS PLACE KIND.",
    )(command)


def _take_masking(context: click.Context, _: click.Parameter, path: str | None) -> None:
    context.meta[_MASKING_KEY] = path


def current_masking() -> Rules | None:
    """The rules of `--masking`; None without. Raises ClickException."""
    path = click.get_current_context().meta.get(_MASKING_KEY)
    if path is None:
        return None
    from fencepost.schemas.masking import RulesError, read_rules

    try:
        return read_rules(path)
    except RulesError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None


def registry_of(properties: Properties, urls: str | None) -> RegistryOptions | None:
    """The registry that properties and `--schema-registry` name. Raises WrongPropertiesError, SchemaError."""
    from fencepost.schemas.options import RegistryOptions

    written = urls if urls is not None else _value(properties, URL)
    if written is None:
        return None
    addresses = tuple(one.strip().rstrip("/") for one in written.split(",") if one.strip())
    return RegistryOptions(addresses, _user(properties), _secret(properties, TOKEN), _tls(properties))


def needs_registry(reason: str) -> RegistryOptions:
    """As `current_registry`, if it cannot be done without. reason: the option that needs it. Raises ClickException."""
    found = current_registry()
    if found is None:
        raise click.UsageError(f"{reason} needs a schema registry: --schema-registry URL, or the property {URL}")
    return found


def missing_library(error: ModuleNotFoundError) -> click.ClickException:
    """The extra to install for a library. Raises the error itself if it is a module of ours."""
    library = (error.name or "fencepost").partition(".")[0]
    if library == "fencepost":
        raise error
    return click.ClickException(
        f"values with schemas need {library}, which is not installed: pip install 'fencepost[schemas]'"
    )


def check_libraries() -> None:
    """Import the libraries that read values. Raises ClickException if a library is missing."""
    try:
        import fastavro  # noqa: F401  the process that reads values imports it
        import google.protobuf  # noqa: F401
        import grpc_tools  # noqa: F401
        import jsonschema  # noqa: F401

        import fencepost.schemas.decoding  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_library(error) from None


def _value(properties: Properties, name: str) -> str | None:
    found = properties.get(name)
    return None if found is None or not found.value.strip() else found.value.strip()


def _secret(properties: Properties, name: str) -> str | None:
    for written in (name, _PREFIX + name):
        if written in properties:
            return secret(properties, written)
    return None


def _user(properties: Properties) -> tuple[str, str] | None:
    source_name = "basic.auth.credentials.source"
    for name in (source_name, _PREFIX + source_name):
        source = _value(properties, name)
        if source is not None and source.upper() != "USER_INFO":
            raise WrongPropertiesError(f"{properties[name].place}: {name}={source}: only USER_INFO is served")
    text = _secret(properties, USER)
    if text is None:
        return None
    name, colon, password = text.partition(":")
    if not colon or not name:
        place = next(properties[one].place for one in (USER, _PREFIX + USER) if one in properties)
        raise WrongPropertiesError(f"{place}: {USER} must be NAME:PASSWORD")
    return name, password


def _tls(properties: Properties) -> ssl.SSLContext | None:
    own: dict[str, Property] = {
        "ssl." + name.removeprefix(_TLS): found for name, found in properties.items() if name.startswith(_TLS)
    }
    if not own:
        return None
    from fencepost.cli.client_tls import tls_context

    return tls_context(own)
