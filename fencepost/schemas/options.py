"""How to reach a schema registry. Imports none of the libraries."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fencepost.schemas.schema import SchemaError


@dataclass(frozen=True)
class RegistryOptions:
    """How to reach a registry. urls: each without a slash at the end; the next one is asked if one does not answer.

    user: name and password, or None. token: for a bearer token, or None. tls: None for the system's authorities.
    """

    urls: tuple[str, ...]
    user: tuple[str, str] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.urls:
            raise SchemaError("there is no address of a schema registry")
        for url in self.urls:
            try:
                parts = urlsplit(url)
                is_wrong = parts.scheme not in ("http", "https") or not parts.hostname or bool(parts.query)
                is_wrong = is_wrong or parts.port == 0
            except ValueError:
                is_wrong = True
            if is_wrong:
                raise SchemaError("the address of a schema registry is such as http://127.0.0.1:8081")
            if parts.username is not None:
                raise SchemaError(
                    "the address of a schema registry has no password in it; write basic.auth.user.info=NAME:PASSWORD "
                    "into the file of --command-config"
                )
