"""How the console was started."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fencepost.client.session import ClientOptions
from fencepost.console.roles import Role
from fencepost.schemas.masking import Rules
from fencepost.schemas.options import RegistryOptions

IDLE_S: Final = 8 * 3600.0
LIFETIME_S: Final = 24 * 3600.0


class OptionError(ValueError):
    """An option that cannot be used: one line for the user, without a full stop."""


@dataclass(frozen=True)
class ClusterOptions:
    """One cluster that a console shows, and how it is asked.

    bootstrap: addresses of brokers. tls: None for connections in plain text.
    needs_log_in: None lets the cluster say so. mechanism: the one to offer first.
    name: the one in addresses of pages, if the console has several. cluster_id: the only one that it may lead to.
    roles: the values of a person's claim that give each role, or the names of users if people log in as users of the
    cluster; None if everybody is an admin. logins: users of the cluster as whom it is asked, for people of each role
    that OpenID Connect has named. passes_token: it is asked by the person's own access token (OAUTHBEARER).
    registry: has the schemas of values. masking: rules that hide parts of records.
    """

    bootstrap: tuple[tuple[str, int], ...]
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    needs_log_in: bool | None = None
    mechanism: str | None = None
    broker_http: str | None = None
    broker_http_token: str | None = field(default=None, repr=False)
    read_only: bool = False
    name: str = "cluster"
    cluster_id: str | None = None
    roles: Mapping[Role, frozenset[str]] | None = None
    logins: Mapping[Role, ClientOptions] = field(default_factory=dict, repr=False)
    passes_token: bool = False
    registry: RegistryOptions | None = None
    masking: Rules | None = field(default=None, repr=False)


@dataclass(frozen=True)
class OidcOptions:
    """The OpenID Connect provider that names people.

    issuer: the URL that its tokens have, too. client_secret: None for a public client. claim: path of the claim with
    the values that give roles. name_claim: claim of the name to show; None for the first that there is. default_role:
    the one of a person without a value that gives one; None refuses. skew_s: difference of clocks that is allowed.
    ca_file: certificates of its authorities, in PEM, in place of the system's. url: the console's own, as people's
    browsers have it.
    """

    issuer: str
    client_id: str
    url: str
    client_secret: str | None = field(default=None, repr=False)
    claim: str = "groups"
    name_claim: str | None = None
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    default_role: Role | None = None
    skew_s: int = 60
    ca_file: Path | None = None


@dataclass(frozen=True)
class TlsFiles:
    """Where a certificate and its key are, in PEM. key: None if the file of the certificate has it, too. password: of
    the key, if it is encrypted.
    """

    certificate: Path
    key: Path | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def names(self) -> str:
        return str(self.certificate) if self.key is None else f"{self.certificate} and {self.key}"


@dataclass(frozen=True)
class ConsoleOptions(ClusterOptions):
    """Options of `fencepost console`: of its one cluster, or of `clusters`, and of the server.

    names: hosts that a browser may ask for, in lower case, beside those of the address that it listens on.
    server_tls: the console has TLS of its own. is_secure: a proxy in front has it. With either, cookies are sent over
    nothing else. has_hsts: with TLS of its own, it asks browsers to come by HTTPS alone from then on.
    idle_s: seconds without use after which a session ends. lifetime_s: seconds after which it ends in any case.
    """

    listen_host: str = "127.0.0.1"
    listen_port: int = 8080
    names: frozenset[str] = frozenset()
    server_tls: TlsFiles | None = None
    is_secure: bool = False
    has_hsts: bool = True
    audit_path: str | None = None
    clusters: tuple[ClusterOptions, ...] = ()
    oidc: OidcOptions | None = None
    idle_s: float = IDLE_S
    lifetime_s: float = LIFETIME_S

    @property
    def is_https(self) -> bool:
        """Whether browsers come by HTTPS."""
        return self.is_secure or self.server_tls is not None

    @property
    def every_cluster(self) -> tuple[ClusterOptions, ...]:
        return self.clusters or (self,)


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT`. Raises OptionError."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or "/" in host or not port_text.isascii() or not port_text.isdigit():
        raise OptionError(f"expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; got {text!r}")
    if int(port_text) > 65_535:
        raise OptionError(f"{port_text} is no port; the highest is 65535")
    return host, int(port_text)
