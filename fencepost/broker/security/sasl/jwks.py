"""The public keys of an authorization server (JWKS), read from a file or by HTTPS, and kept while it is down.

They are read before clients are served, at an interval, and when a token names an unknown key: at most once in a
back-off, for any number of such tokens.
Source: KIP-768; Kafka's RefreshingHttpsJwks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.security.sasl.claims import Expected
from fencepost.broker.security.sasl.jwt_validation import (
    KeysError,
    PublicKey,
    keys_for,
    read_head,
    read_keys,
    validate,
)
from fencepost.broker.security.sasl.oauthbearer import Bearer, InvalidToken
from fencepost.protocol.checked_json import parse

log = get_logger(__name__)

REFRESHING = Place("refresh of the keys of tokens", Policy.RETRY)

MAXIMUM_BYTES: Final = 1024 * 1024
TIMEOUT_S: Final = 5.0
"""A broker that stops waits as long for a server that does not answer."""


class JwksSettings(NamedTuple):
    """The URL of the keys, and the times at which they are read again."""

    url: str
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


class JwksError(Exception):
    """The keys cannot be read; the message is for the operator."""


Fetch = Callable[[str], bytes]
"""Reads the content of a URL; runs on a thread. Raises JwksError."""


def check_url(url: str) -> None:
    """Raises ValueError for a URL from which no keys are read."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return
    if parts.scheme == "https" and parts.hostname:
        return
    raise ValueError(f"expected https://… or file:///…, got {url!r}: keys that others can exchange protect nothing")


def fetch(url: str) -> bytes:
    """Read a file or an HTTPS resource. Raises JwksError."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with open(url2pathname(parts.path), "rb") as file:
                content = file.read(MAXIMUM_BYTES + 1)
        else:
            # A redirect could lead to another scheme, which is not checked.
            opener = build_opener(_NoRedirects)
            request = Request(url, headers={"Accept": "application/json"})
            with opener.open(request, timeout=TIMEOUT_S) as reply:
                content = reply.read(MAXIMUM_BYTES + 1)
    except HTTPError as error:
        with error:  # a reply, too
            raise JwksError(f"{url} answers with the status {error.code}") from None
    except URLError as error:
        raise JwksError(f"cannot read {url}: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise JwksError(f"cannot read {url}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MAXIMUM_BYTES:
        raise JwksError(f"{url} has more than {MAXIMUM_BYTES} bytes")
    return content


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class Jwks:
    """The keys of one URL."""

    def __init__(self, settings: JwksSettings, *, loop: asyncio.AbstractEventLoop, fetch: Fetch = fetch) -> None:
        self.keys: Sequence[PublicKey] = ()
        self._settings = settings
        self._loop = loop
        self._fetch = fetch
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="jwks")
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Future[None] | None = None
        self._read_again_at_s = 0.0
        self._backoff_ms = settings.retry_backoff_ms
        self._is_closed = False
        self._is_failing = False

    async def open(self) -> None:
        """Read the keys for the first time. Raises JwksError."""
        await self._read()
        self._schedule(self._settings.refresh_ms)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def read_again(self) -> None:
        """Read the keys again, unless that was done within the back-off; if it fails, the current ones stay."""
        if self._reading is None:
            if self._loop.time() < self._read_again_at_s:
                return
            self._refresh()
        if self._reading is not None:
            await asyncio.shield(self._reading)

    async def _read(self) -> None:
        self._read_again_at_s = self._loop.time() + self._settings.retry_backoff_max_ms / 1000
        content = await self._loop.run_in_executor(self._executor, self._fetch, self._settings.url)
        try:
            self.keys = read_keys(parse(content))
        except ValueError as error:  # JsonError or KeysError
            reason = str(error) if isinstance(error, KeysError) else f"it is no JSON: {error}"
            raise JwksError(f"{self._settings.url} cannot be used: {reason}") from None

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_closed:
            self._timer = self._loop.call_later(delay_ms / 1000, REFRESHING.callback(self._refresh))

    def _refresh(self) -> None:
        """Begin to read the keys again, if that has not begun."""
        self._schedule(self._settings.refresh_ms)  # first, so that the next refresh comes even if this one fails
        if self._reading is None:
            self._reading = REFRESHING.start(self._read_or_keep(), concerns=self._settings.url)
            self._reading.add_done_callback(self._read_ended)

    def _read_ended(self, _: asyncio.Future[None]) -> None:
        self._reading = None

    async def _read_or_keep(self) -> None:
        settings = self._settings
        try:
            await self._read()
        except JwksError as error:
            if not self._is_failing:
                log.warning("keys_not_refreshed", reason=str(error), hint="the keys that were read last are kept")
            self._is_failing = True
            self._schedule(self._backoff_ms)
            self._backoff_ms = min(2 * self._backoff_ms, settings.retry_backoff_max_ms)
        else:
            self._backoff_ms = settings.retry_backoff_ms
            if self._is_failing:
                log.info("keys_refreshed", url=settings.url)
            self._is_failing = False


class TokenValidator:
    """Validates tokens against the keys of an issuer."""

    def __init__(self, jwks: Jwks, expected: Expected, clock: Clock) -> None:
        self._jwks = jwks
        self._expected = expected
        self._clock = clock

    async def validate(self, token: str) -> Bearer | InvalidToken:
        """Validate a token; waits only if it names a key that has to be fetched."""
        head = read_head(token)
        if isinstance(head, InvalidToken):
            return head
        keys = keys_for(head, self._jwks.keys)
        if not keys:
            await self._jwks.read_again()
            keys = keys_for(head, self._jwks.keys)
        if not keys:
            return InvalidToken("a token of a key that the issuer does not have")
        return validate(token, head, keys, self._expected, self._clock.now_ms())
