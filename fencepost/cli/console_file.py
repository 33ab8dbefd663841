"""The file of `fencepost console --config`: the server, OpenID Connect, roles and clusters, in TOML."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from fencepost.cli.client_properties import Properties, WrongPropertiesError, read_file
from fencepost.cli.client_security import ClientSecurity, security_of, transport_of
from fencepost.console.options import (
    IDLE_S,
    LIFETIME_S,
    ClusterOptions,
    ConsoleOptions,
    OidcOptions,
    OptionError,
    TlsFiles,
    parse_address,
)
from fencepost.console.roles import Role

LONGEST_FILE_BYTES: Final = 1 << 20
MOST_CLUSTERS: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_CLIENT_ID: Final = "fencepost-console"
_TYPES: Final = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list of texts",
}


class _Table:
    """A table of the file. where: its name, for errors; empty for the file as a whole."""

    def __init__(self, content: Mapping[str, Any], where: str, path: Path) -> None:
        self._content = content
        self._where = where
        self._path = path
        self._known: list[str] = []

    def wrong(self, key: str, reason: str) -> OptionError:
        return OptionError(f"{self._path}: {f'{self._where}.' if self._where else ''}{key}: {reason}")

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """A value of a kind. Raises OptionError."""
        self._known.append(key)
        found = self._content.get(key, default)
        if found is default:
            return default
        is_kind = isinstance(found, int | float) if kind is float else isinstance(found, kind)
        if not is_kind or (isinstance(found, bool) and kind is not bool):
            raise self.wrong(key, f"expected {_TYPES[kind]}")
        if kind is list and not all(isinstance(one, str) for one in found):
            raise self.wrong(key, f"expected {_TYPES[kind]}")
        return found

    def text(self, key: str) -> str:
        """A text that must be there. Raises OptionError."""
        found: str | None = self.get(key, str)
        if not found:
            raise self.wrong(key, "is missing")
        return found

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """A number between two bounds. Raises OptionError."""
        found: float = self.get(key, float, default)
        if not least <= found <= most:
            raise self.wrong(key, f"must be from {least:g} to {most:g}")
        return found

    def file(self, key: str) -> Path | None:
        """A file, beside this one if its path is relative. Raises OptionError."""
        found = self.get(key, str)
        if found is None:
            return None
        path: Path = self._path.parent / found
        if not path.is_file():
            raise self.wrong(key, f"there is no file {path}")
        return path

    def secret(self, key: str) -> str | None:
        """The content of a file. Raises OptionError."""
        path = self.file(key)
        try:
            return None if path is None else path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise self.wrong(key, f"{path} cannot be read as text") from None

    def table(self, key: str) -> _Table | None:
        """A table in this one. Raises OptionError."""
        self._known.append(key)
        found = self._content.get(key)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self.wrong(key, f"expected a table: [{f'{self._where}.' if self._where else ''}{key}]")
        return _Table(found, f"{self._where}.{key}" if self._where else key, self._path)

    def keys(self) -> Iterable[str]:
        return self._content.keys()

    def finish(self) -> None:
        """Refuse the keys that nobody has asked for. Raises OptionError."""
        for key in self._content:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(self._known)}"
                raise self.wrong(key, f"is not known; {hint}")


def read_config(path: Path) -> ConsoleOptions:
    """The options that a file has. Raises OptionError."""
    whole = _Table(_parsed(path), "", path)
    try:
        oidc = _oidc(whole.table("oidc"))
        roles = _roles(whole.table("roles"))
        clusters = whole.table("clusters")
        names = list(clusters.keys()) if clusters is not None else []
        if clusters is None or not names:
            raise whole.wrong("clusters", "name at least one, as [clusters.prod] with its bootstrap")
        if len(names) > MOST_CLUSTERS:
            raise whole.wrong("clusters", f"a console has at most {MOST_CLUSTERS}")
        shown = tuple(_cluster(clusters, name, roles, oidc) for name in names)
        server = _server(whole.table("console") or _Table({}, "console", path))
        whole.finish()
    except WrongPropertiesError as error:
        raise OptionError(str(error)) from None
    if oidc is not None and oidc.default_role is None and any(one.roles is None for one in shown):
        without = next(one.name for one in shown if one.roles is None)
        raise whole.wrong(f"clusters.{without}.roles", "with [oidc], say which values of the claim give which role")
    return replace(server, clusters=shown, oidc=oidc)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_FILE_BYTES + 1)
        if len(content) > LONGEST_FILE_BYTES:
            raise OptionError(f"{path}: a configuration may have at most {LONGEST_FILE_BYTES:,} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{path}: it is not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OptionError(f"{path}: {error}") from None


def _server(table: _Table) -> ConsoleOptions:
    certificate, key = table.file("tls_certificate"), table.file("tls_key")
    password = table.secret("tls_key_password_file")
    if certificate is None and (key is not None or password is not None):
        raise table.wrong("tls_key", "counts only with tls_certificate")
    try:
        host, port = parse_address(table.get("listen", str, "127.0.0.1:8080"))
    except OptionError as error:
        raise table.wrong("listen", str(error)) from None
    options = ConsoleOptions(
        bootstrap=(),
        listen_host=host,
        listen_port=port,
        names=frozenset(name.lower() for name in table.get("names", list, [])),
        server_tls=None if certificate is None else TlsFiles(certificate, key, password),
        is_secure=table.get("https", bool, False),
        has_hsts=table.get("hsts", bool, True),
        idle_s=60 * table.number("idle_minutes", IDLE_S / 60, 0.1, 10_080),
        lifetime_s=3600 * table.number("session_hours", LIFETIME_S / 3600, 0.1, 720),
        audit_path=table.get("audit_log", str),
    )
    table.finish()
    return options


def _oidc(table: _Table | None) -> OidcOptions | None:
    if table is None:
        return None
    default_role = table.get("default_role", str)
    if default_role is not None and default_role not in {one.value for one in Role}:
        raise table.wrong("default_role", f"expected {', '.join(one.value for one in Role)}")
    scopes = tuple(table.get("scopes", list, ["openid", "profile", "email"]))
    if "openid" not in scopes:
        raise table.wrong("scopes", "must have openid")
    options = OidcOptions(
        issuer=_url(table, "issuer", table.text("issuer")).rstrip("/"),
        client_id=table.text("client_id"),
        client_secret=table.secret("client_secret_file"),
        claim=table.get("claim", str, "groups"),
        name_claim=table.get("name_claim", str),
        scopes=scopes,
        default_role=None if default_role is None else Role(default_role),
        skew_s=int(table.number("clock_skew_seconds", 60, 0, 600)),
        ca_file=table.file("ca_file"),
        url=_url(table, "console_url", table.text("console_url")).rstrip("/"),
    )
    table.finish()
    return options


def _url(table: _Table, key: str, text: str) -> str:
    """An address of HTTPS, or of HTTP on this machine. Raises OptionError."""
    try:
        parts = urlsplit(text)
        is_fine = bool(parts.hostname) and not parts.query and not parts.fragment and parts.username is None
    except ValueError:
        is_fine = False
    if not is_fine or parts.scheme not in ("https", "http"):
        raise table.wrong(key, "expected a URL, such as https://login.example/realms/main")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise table.wrong(key, "expected https://; http:// is for this machine alone")
    return text


def _roles(table: _Table | None) -> dict[Role, frozenset[str]] | None:
    if table is None:
        return None
    found = {role: frozenset(table.get(role.value, list, [])) for role in Role}
    table.finish()
    return found


def _cluster(
    clusters: _Table, name: str, roles: dict[Role, frozenset[str]] | None, oidc: OidcOptions | None
) -> ClusterOptions:
    if not _NAME.fullmatch(name):
        raise clusters.wrong(
            name, "a name has at most 64 letters, digits, dots, - and _, and begins with a letter or digit"
        )
    table = clusters.table(name)
    assert table is not None
    own_roles = _roles(table.table("roles"))
    properties = _properties(table, "client_config")
    security = transport_of(properties)
    passes_token = table.get("pass_token", bool, False)
    logins = _logins(table, properties) if oidc is not None else {}
    if passes_token and (oidc is None or logins):
        raise table.wrong("pass_token", "counts with [oidc], and without users of the cluster")
    try:
        bootstrap = tuple(parse_address(one) for one in table.text("bootstrap").split(","))
    except OptionError as error:
        raise table.wrong("bootstrap", str(error)) from None
    options = ClusterOptions(
        bootstrap=bootstrap,
        tls=security.tls,
        needs_log_in=security.protocol.startswith("SASL") or None,
        mechanism=security.mechanism,
        broker_http=table.get("broker_http", str),
        broker_http_token=table.secret("broker_http_token_file"),
        read_only=table.get("read_only", bool, False),
        name=name,
        cluster_id=table.get("cluster_id", str),
        roles=own_roles if own_roles is not None else roles,
        logins=logins,
        passes_token=passes_token,
        registry=_registry(table, properties),
        masking=_masking(table),
    )
    table.finish()
    return options


def _properties(table: _Table, key: str) -> Properties:
    path = table.file(key)
    return {} if path is None else read_file(str(path))


def _logins(table: _Table, properties: Properties) -> dict[Role, Any]:
    """The clients of each role: of its own user, or of the user in the cluster's own properties."""
    users = table.table("users")
    files = {} if users is None else {role: _properties(users, role.value) for role in Role}
    if users is not None:
        users.finish()
    found = {}
    for role in Role:
        own = files.get(role) or properties
        security = security_of(own) if own and _names_user(own) else None
        if security is not None:
            if security.token is not None:
                raise table.wrong("users", "a user that the console asks as needs a password, or a certificate")
            found[role] = _client_options(security)
    return found


def _names_user(properties: Properties) -> bool:
    """Whether properties log in, and do not only say how to connect."""
    return any(name in properties for name in ("sasl.jaas.config", "sasl.username", "ssl.keystore.location"))


def _client_options(security: ClientSecurity) -> Any:
    return security.own_options(_CLIENT_ID)


def _registry(table: _Table, properties: Properties) -> Any:
    urls = table.get("schema_registry", str)
    if urls is None:
        return None
    from fencepost.cli.schema_options import check_libraries, registry_of
    from fencepost.schemas.schema import SchemaError

    check_libraries()
    try:
        return registry_of(properties, urls)
    except SchemaError as error:
        raise table.wrong("schema_registry", str(error)) from None


def _masking(table: _Table) -> Any:
    path = table.file("masking")
    if path is None:
        return None
    from fencepost.schemas.masking import RulesError, read_rules

    try:
        return read_rules(str(path))
    except (RulesError, OSError) as error:
        raise table.wrong("masking", str(error)) from None
