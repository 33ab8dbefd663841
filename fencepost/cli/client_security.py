"""How the client commands connect: `--command-config FILE` and `-X NAME=VALUE`, with the properties of Kafka's clients.

The file is one of Kafka's own tools, as `kafka-topics --command-config` reads it. The names of librdkafka for the same
things, as files of kcat have them, are known, too. Other properties of clients, such as `request.timeout.ms`, are left
aside; an unknown property that would protect a connection is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from fencepost.cli.client_properties import Properties, Property, WrongPropertiesError, read_file, secret
from fencepost.cli.profile_choice import is_named, profile_in_use

if TYPE_CHECKING:
    import ssl

    from fencepost.client.session import ClientOptions

Command = TypeVar("Command", bound=Callable[..., Any])
_CONTEXT_KEY: Final = "fencepost.client-security"
_WRONG_KEY: Final = "fencepost.client-security.wrong"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
KNOWN: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "ssl.endpoint.identification.algorithm",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_OTHER_NAMES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
"""Names of librdkafka. `ssl.certificate.location` and `ssl.key.location` are read on their own: two files."""
_TWO_FILES: Final = ("ssl.certificate.location", "ssl.key.location")
_WITHOUT_EFFECT: Final = frozenset(
    {
        "security.providers",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
    }
)
_WITHOUT_EFFECT_PREFIXES: Final = ("sasl.kerberos.", "sasl.login.", "sasl.oauthbearer.")
_PROTECTING: Final = ("ssl.", "sasl.", "security.")


@dataclass(frozen=True, repr=False)
class ClientSecurity:
    """How to connect and to log in.

    tls:   context of connections with TLS; None without.
    mechanism: name of the SASL mechanism; None without. token: makes a token, for OAUTHBEARER.
    is_delegated: name and password are the id and the HMAC of a delegation token.
    """

    protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    token: Callable[[], str] | None = None
    is_delegated: bool = False

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}, {self.mechanism})"

    def client_options(self) -> dict[str, Any]:
        """Arguments for a client of kafka-python."""
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.tls is not None:
            options["ssl_context"] = self.tls
        if self.mechanism is None:
            return options
        from fencepost.protocol.sasl_login import escaped_name

        options["sasl_mechanism"] = self.mechanism
        if self.is_delegated:
            from fencepost.cli.token_login import log_in_by_tokens

            log_in_by_tokens(self.mechanism)
            return {**options, "sasl_plain_username": self.username, "sasl_plain_password": self.password}
        if self.token is None:
            name = self.username
            if self.mechanism != "PLAIN":
                name = escaped_name(name)  # kafka-python leaves that out
            return {**options, "sasl_plain_username": name, "sasl_plain_password": self.password}
        return {**options, "sasl_oauth_token_provider": _token_provider(self.token)}

    def own_options(self, client_id: str) -> ClientOptions:
        """Options of a client of our own."""
        from fencepost.client.log_in import Credentials
        from fencepost.client.session import ClientOptions

        if self.mechanism is None:
            return ClientOptions(self.tls, client_id=client_id)
        return ClientOptions(
            self.tls,
            Credentials(self.mechanism, self.username, self.token or self.password, self.is_delegated),
            client_id,
        )


NO_SECURITY: Final = ClientSecurity()


def security_options(command: Command) -> Command:
    """Add `--command-config` and `-X`. The command does not get them: `current_security` reads them."""
    command = click.option(
        "-X",
        "properties",
        metavar="NAME=VALUE",
        multiple=True,
        expose_value=False,
        callback=_take_properties,
        help="One property of the client; may be repeated, and counts more than the file. Others on this machine can "
        "see it: passwords belong into the file.",
    )(command)
    return click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        envvar="FENCEPOST_COMMAND_CONFIG",
        show_envvar=True,
        expose_value=False,
        callback=_take_file,
        help="Properties of the client, for brokers with TLS or SASL, as Kafka's tools read them: security.protocol, "
        "sasl.mechanism, sasl.jaas.config, ssl.truststore.location and others.",
    )(command)


def _take_file(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    source = context.get_parameter_source(parameter.name or "")
    if path is not None and (source is ParameterSource.COMMANDLINE or not is_named(context)):
        try:
            _taken(context)["file"] = read_file(path)
        except WrongPropertiesError as error:
            context.meta[_WRONG_KEY] = True
            raise click.BadParameter(str(error)) from None


def is_wrong(context: click.Context) -> bool:
    """Whether the properties could not be read: a shell's completion goes on behind such an error."""
    return _WRONG_KEY in context.meta


def _take_properties(context: click.Context, _: click.Parameter, pairs: tuple[str, ...]) -> None:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            context.meta[_WRONG_KEY] = True
            raise click.BadParameter(f"{name!r} is not NAME=VALUE")
        found[name.strip()] = Property(value.strip(), "-X")
    _taken(context)["options"] = found


def _taken(context: click.Context) -> dict[str, Properties]:
    taken: dict[str, Properties] = context.meta.setdefault(_CONTEXT_KEY, {})
    return taken


def current_properties(context: click.Context) -> Properties:
    """Those of the file, else of the profile in use, and above them those of `-X`. Raises WrongPropertiesError."""
    taken = _taken(context)
    below = taken.get("file")
    if below is None:
        used = profile_in_use()
        below = {} if used is None else used.properties()
    return {**below, **taken.get("options", {})}


def current_security() -> ClientSecurity:
    """Return the security of `--command-config`, the profile and `-X` of the running command. Raises ClickException."""
    context = click.get_current_context(silent=True)
    if context is None:
        return NO_SECURITY
    made = context.meta.get(_CONTEXT_KEY + ".made")
    if made is None:
        try:
            made = security_of(current_properties(context))
        except WrongPropertiesError as error:
            raise click.ClickException(str(error)) from None
        context.meta[_CONTEXT_KEY + ".made"] = made
    found: ClientSecurity = made
    return found


def current_transport() -> ClientSecurity:
    """As `current_security`, without who logs in: for a program at which each person logs in. Raises ClickException."""
    try:
        return transport_of(current_properties(click.get_current_context()))
    except WrongPropertiesError as error:
        raise click.ClickException(str(error)) from None


def transport_of(properties: Properties) -> ClientSecurity:
    """The security of a client's properties, without who logs in. Raises WrongPropertiesError."""
    known = _known(properties)
    protocol, tls = _protocol_and_tls(known)
    return ClientSecurity(protocol, tls, _one_of(known, "sasl.mechanism", "", MECHANISMS) or None)


def _protocol_and_tls(known: Properties) -> tuple[str, ssl.SSLContext | None]:
    protocol = _one_of(known, "security.protocol", "PLAINTEXT", PROTOCOLS)
    _refuse_without_effect(known, protocol)
    if not protocol.endswith("SSL"):
        return protocol, None
    from fencepost.cli.client_tls import tls_context

    return protocol, tls_context(known)


def security_of(properties: Properties) -> ClientSecurity:
    """Return the security of a client's properties. Raises WrongPropertiesError."""
    known = _known(properties)
    protocol, tls = _protocol_and_tls(known)
    if not protocol.startswith("SASL"):
        return ClientSecurity(protocol, tls)
    if "sasl.mechanism" not in known:
        raise WrongPropertiesError(
            f"security.protocol={protocol} needs sasl.mechanism, one of {', '.join(MECHANISMS)} (Kafka's default, "
            "GSSAPI, is not served)"
        )
    mechanism = _one_of(known, "sasl.mechanism", "", MECHANISMS)
    if mechanism == "OAUTHBEARER":
        from fencepost.cli.client_tokens import token_source

        return ClientSecurity(protocol, tls, mechanism, token=token_source(known, _jaas_options(known)))
    name, password, is_delegated = _name_and_password(known, mechanism)
    return ClientSecurity(protocol, tls, mechanism, name, password, is_delegated=is_delegated)


def check_known(properties: Properties) -> None:
    """Raise WrongPropertiesError for a property that seems to protect a connection and is not known."""
    _known(properties)


def _known(properties: Properties) -> dict[str, Property]:
    """The properties that concern security, by Kafka's names. Raises WrongPropertiesError."""
    known = {}
    for written, found in properties.items():
        name = _OTHER_NAMES.get(written, written)
        if name in KNOWN or name in _TWO_FILES:
            known[name] = found
        elif name == "enable.ssl.certificate.verification" and found.value.strip().lower() != "true":
            raise WrongPropertiesError(
                f"{found.place}: {written}: certificates are always verified; name the authority's certificate with "
                "ssl.truststore.location"
            )
        elif name.startswith(_PROTECTING) and not (
            name in _WITHOUT_EFFECT or name.startswith(_WITHOUT_EFFECT_PREFIXES)
        ):
            near = difflib.get_close_matches(name, KNOWN, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(KNOWN))}"
            raise WrongPropertiesError(f"{found.place}: {written} is not known; {hint}")
    return known


def _one_of(properties: Properties, name: str, default: str, choices: Iterable[str]) -> str:
    found = properties.get(name)
    if found is None:
        return default
    value = found.value.strip().upper()
    if value not in choices:
        raise WrongPropertiesError(
            f"{found.place}: {name}={found.value}: expected {', '.join(choices)}"
            + ("; Kerberos is not served" if value == "GSSAPI" else "")
        )
    return value


def _refuse_without_effect(properties: Properties, protocol: str) -> None:
    """Refuse properties that seem to protect a connection but have no effect."""
    for prefix, is_used, word in (
        ("ssl.", protocol.endswith("SSL"), "SSL or SASL_SSL"),
        ("sasl.", protocol.startswith("SASL"), "SASL_SSL or SASL_PLAINTEXT"),
    ):
        unused = next((name for name in properties if name.startswith(prefix)), None)
        if unused is not None and "security.protocol" not in properties and not is_used:
            raise WrongPropertiesError(
                f"{properties[unused].place}: {unused} counts only with security.protocol={word}, and there is none"
            )


def _jaas_options(properties: Properties) -> Mapping[str, str]:
    written = secret(properties, "sasl.jaas.config")
    if written is None:
        return {}
    from fencepost.broker.security.sasl.jaas import JaasError, read_login_module

    try:
        return read_login_module(written).options
    except JaasError as error:
        raise WrongPropertiesError(f"{properties['sasl.jaas.config'].place}: sasl.jaas.config: {error}") from None


def _name_and_password(properties: Properties, mechanism: str) -> tuple[str, str, bool]:
    """Name, password, and whether they are the id and the HMAC of a delegation token."""
    is_delegated = False
    name, password = secret(properties, "sasl.username"), secret(properties, "sasl.password")
    if name is None and password is None:
        options = _jaas_options(properties)
        name, password = options.get("username"), options.get("password")
        is_delegated = options.get("tokenauth", "").lower() == "true"
    if is_delegated and mechanism == "PLAIN":
        raise WrongPropertiesError(
            f"{properties['sasl.jaas.config'].place}: sasl.jaas.config: a delegation token (tokenauth) needs a "
            "sasl.mechanism of SCRAM"
        )
    if name is None or password is None:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        raise WrongPropertiesError(
            f"sasl.mechanism={mechanism} needs a name and a password: sasl.jaas.config="
            f'org.apache.kafka.common.security.{module} required username="NAME" password="PASSWORD";  '
            "or sasl.username and sasl.password"
        )
    return name, password, is_delegated


def _token_provider(token: Callable[[], str]) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return token()

    return Provider()
