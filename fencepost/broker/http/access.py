"""The access rules of the HTTP listener: tokens with roles, the Host header, and the headers of a POST.

Any page in a browser on this machine can make the browser send requests to the listener. The page cannot choose the
Host header: the browser writes the page's own host (DNS rebinding). Its POST has an Origin, and without a preflight
request it cannot have the content type of JSON.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from fencepost.broker.config.listeners import ALL_INTERFACES
from fencepost.broker.http.exchange import JSON, BadRequestError, HttpRequest
from fencepost.broker.kernel.addresses import canonical_host
from fencepost.broker.kernel.events import get_logger

log = get_logger(__name__)

NEVER_NEED_A_TOKEN: Final = frozenset({("healthz",), ("livez",), ("readyz",)})
"""Probes have no token, and these paths say little."""
_LINE: Final = re.compile(r"([A-Za-z0-9._-]{1,64}):(viewer|operator):([0-9a-f]{64})")
_ADDRESS: Final = re.compile(r"\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.%]+\]")
_LOOPBACK_ADDRESS: Final = re.compile(r"127(\.\d{1,3}){3}")


class Role(IntEnum):
    """A viewer may read everything; an operator may change things, too."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2


class Token(NamedTuple):
    """A token that is known by the SHA-256 of its text."""

    name: str
    role: Role
    digest: bytes


class TokenFileError(ValueError):
    """A file of tokens that cannot be used: one line for the user."""


def read_tokens(path: str) -> tuple[Token, ...]:
    """Read lines of `name:role:sha256`; empty ones and those that begin with `#` are left out. Raises
    TokenFileError."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
            is_readable_by_others = os.fstat(file.fileno()).st_mode & 0o007
    except (OSError, ValueError) as error:
        raise TokenFileError(f"{path} cannot be read: {error}") from None
    tokens = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise TokenFileError(
                f"{path}:{number}: expected name:role:sha256, with the role viewer or operator and the hex digest of "
                "the token, as `printf %s TOKEN | sha256sum` prints it"
            )
        tokens.append(Token(match[1], Role[match[2].upper()], bytes.fromhex(match[3])))
    if is_readable_by_others:
        log.warning("token_file_is_readable_by_others", path=path, remedy=f"chmod 600 {path}")
    return tuple(tokens)


class AccessDeniedError(Exception):
    """A request that may not be answered: the status and the reason, which the client gets."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Access:
    """The rules of one listener.

    host:       the listener's address; is_local if only this machine reaches it: then a GET needs no token.
    host_names: further names in the clients' URLs.
    """

    def __init__(self, host: str, tokens: Sequence[Token], host_names: Sequence[str] = ()) -> None:
        self.is_local = is_loopback(host)
        self._tokens = tokens
        self._host_names = {name.lower() for name in host_names}
        if host not in ALL_INTERFACES:
            self._host_names.add(host.lower())
        if self.is_local:
            self._host_names.add("localhost")
        else:
            self._host_names.add(socket.gethostname().lower())

    def check(self, request: HttpRequest) -> None:
        """Admit a request, and note its caller. Raises AccessDeniedError, BadRequestError."""
        self._check_host(request.headers)
        is_change = request.method == "POST"
        if is_change:
            _check_change(request)
        token = self._token(request.headers)
        if token is not None:
            request.caller = token.name
        if request.path in NEVER_NEED_A_TOKEN:
            return
        needed = Role.OPERATOR if is_change else Role.NONE if self.is_local else Role.VIEWER
        if needed > (Role.NONE if token is None else token.role):
            if token is not None:
                raise AccessDeniedError(403, f"the token {token.name} has the role {token.role.name.lower()}")
            raise AccessDeniedError(
                401,
                f"this needs a token with the role {needed.name.lower()}, in the header `Authorization: Bearer …`; "
                "fencepost.http.token.file has the tokens",
            )

    def _check_host(self, headers: Mapping[str, str]) -> None:
        named = headers.get("host", "")
        host = re.sub(r":\d*$", "", named).lower()
        is_address = _ADDRESS.fullmatch(host) is not None and (not self.is_local or is_loopback(host))
        if not is_address and host.rstrip(".") not in self._host_names:
            raise AccessDeniedError(
                421,
                f"this listener is not called {named[:100]!r}; use its address, or add the name to "
                "fencepost.http.host.names",
            )

    def _token(self, headers: Mapping[str, str]) -> Token | None:
        """The token of a request. Takes the same time whichever it is. Raises AccessDeniedError for a wrong one."""
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if not scheme:
            return None
        digest = hashlib.sha256(text.strip().encode()).digest()
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None or scheme.lower() != "bearer":
            raise AccessDeniedError(401, "the token is unknown; fencepost.http.token.file has the tokens")
        return found


def _check_change(request: HttpRequest) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON:
        raise BadRequestError(f"a POST needs the header `Content-Type: {JSON}`", 415)
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != request.headers.get("host", "").lower():
        raise AccessDeniedError(403, f"requests of pages from {origin[:100]!r} are refused")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener at this host."""
    host = canonical_host(host)
    return host == "localhost" or host == "::1" or _LOOPBACK_ADDRESS.fullmatch(host) is not None
