"""The mechanisms of a SASL listener, made of its settings; their files are opened before clients are served."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.config import Listener, Settings
from fencepost.broker.hosting.scram_credentials import ScramCredentials, ScramMechanism
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.network.authentication import ListenerAuthentication
from fencepost.broker.network.server import StartError
from fencepost.broker.security.sasl import oauthbearer, plain, scram
from fencepost.broker.security.sasl.exchange import Exchange
from fencepost.broker.security.sasl.failure_delays import FailureDelays
from fencepost.broker.security.sasl.jaas import OAUTHBEARER_MODULE, SCRAM_MODULE, plain_users, read_login_module
from fencepost.broker.security.sasl.plain import ClearPasswords, Passwords, PlainExchange
from fencepost.broker.security.sasl.scram import ScramExchange
from fencepost.broker.security.sasl.scram_users import ScramUsers
from fencepost.protocol.checked_json import text_of

if TYPE_CHECKING:
    from fencepost.broker.security.delegation_token_store import DelegationTokens
    from fencepost.broker.security.sasl.claims import Expected
    from fencepost.broker.security.sasl.oauthbearer import ValidateToken
    from fencepost.broker.security.sasl.users_file import UsersFile

log = get_logger(__name__)

SECRET_KEY: Final = "sasl-secret"
"""The key of the secret of the cluster from which the salts of unknown users are made."""

NewExchange = Callable[[str], Exchange]
"""Begins an exchange with a client at an address."""


class ListenerLimits:
    """The bounds on authentications of one listener. They are read anew each time: some may change meanwhile."""

    def __init__(self, settings: Settings, listener: str) -> None:
        self._settings = settings
        self._listener = listener

    def _value(self, name: str, mechanism: str | None = None) -> Any:
        return self._settings.for_listener(name, self._listener, mechanism)

    @property
    def timeout_ms(self) -> int:
        return int(self._value("fencepost.authentication.timeout.ms"))

    @property
    def max_receive_bytes(self) -> int:
        return int(self._value("sasl.server.max.receive.size"))

    @property
    def failure_delay_ms(self) -> int:
        return int(self._value("connection.failed.authentication.delay.ms"))

    def max_reauth_ms(self, mechanism: str) -> int:
        return int(self._value("connections.max.reauth.ms", mechanism))


class SaslListeners:
    """Makes the authentication of each SASL listener of a broker, and closes the mechanisms' resources."""

    def __init__(
        self,
        settings: Settings,
        store: MetadataStore,
        credentials: ScramCredentials,
        tokens: DelegationTokens | None,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._settings = settings
        self._store = store
        self._credentials = credentials
        self._tokens = tokens
        self._clock = clock
        self._loop = loop
        self._delays = FailureDelays()
        self._log_limit = LogLimit(
            loop.time,
            lambda count, host: log.warning(
                "authentication_failures_not_logged", failures=count, host=host or "others"
            ),
        )
        self._opened = AsyncExitStack()

    async def close(self) -> None:
        await self._opened.aclose()

    async def open(self, listener: Listener) -> ListenerAuthentication:
        """Open the mechanisms of a listener. Raises StartError, StorageError."""
        makers: dict[str, Callable[[Listener], Awaitable[NewExchange]]] = {
            plain.MECHANISM: self._plain,
            **{mechanism: partial(self._scram, mechanism) for mechanism in scram.DIGESTS},
            oauthbearer.MECHANISM: self._oauthbearer,
        }
        enabled = self._settings.for_listener("sasl.enabled.mechanisms", listener.name)
        mechanisms = {mechanism: await makers[mechanism](listener) for mechanism in dict.fromkeys(enabled)}
        if not mechanisms:
            raise StartError(
                f"the listener {listener.name} has SASL and no mechanism: set sasl.enabled.mechanisms, for example to "
                "SCRAM-SHA-512"
            )
        return ListenerAuthentication(
            listener.name,
            mechanisms,
            ListenerLimits(self._settings, listener.name),
            self._delays,
            self._clock,
            self._loop,
            self._log_limit,
        )

    def _value(self, name: str, listener: Listener, mechanism: str | None = None) -> Any:
        return self._settings.for_listener(name, listener.name, mechanism)

    # PLAIN

    async def _plain(self, listener: Listener) -> NewExchange:
        jaas = self._value("sasl.jaas.config", listener, plain.MECHANISM)
        path = self._value("fencepost.plain.users.file", listener)
        where = f"listener {listener.name}, sasl.jaas.config for PLAIN"
        users: dict[str, str] = {}
        if jaas is not None:
            try:
                users = self._users_of(jaas.reveal(), listener)
            except ValueError as error:  # also if a file that it names cannot be read
                raise StartError(f"{where}: {error}") from None
        if not users and not path:
            raise StartError(
                f"the listener {listener.name} enables PLAIN and has no users: name them in "
                f"listener.name.{listener.name.lower()}.plain.sasl.jaas.config, or in a file that "
                "fencepost.plain.users.file names"
            )
        if not (listener.protocol.uses_tls or listener.is_for_this_machine):
            log.warning(
                "passwords_in_clear_text",
                listener=listener.name,
                hint="PLAIN without TLS shows them to all who see the network: use SASL_SSL, or SCRAM",
            )
        clear = ClearPasswords(users, secrets.token_bytes(32))
        passwords: Passwords = clear if not path else AllPasswords(clear, await self._users_file(path))
        return lambda host: PlainExchange(passwords, host)

    def _users_of(self, jaas: str, listener: Listener) -> dict[str, str]:
        """The users in a text; none if it is for another mechanism, and meant for all. Raises ValueError."""
        is_for_plain = self._settings.of_listener("sasl.jaas.config", listener.name, plain.MECHANISM) is not None
        if not is_for_plain and read_login_module(jaas).name in (SCRAM_MODULE, OAUTHBEARER_MODULE):
            return {}
        return plain_users(jaas)

    async def _users_file(self, path: str) -> UsersFile:
        from fencepost.broker.security.sasl.users_file import UsersFile, UsersFileError

        file = UsersFile(path)
        self._opened.callback(file.close)
        try:
            await file.open()
        except UsersFileError as error:
            raise StartError(f"fencepost.plain.users.file: {error}") from None
        return file

    # SCRAM

    async def _scram(self, mechanism: str, listener: Listener) -> NewExchange:
        key = ScramMechanism[mechanism.replace("-", "_")]
        users = ScramUsers(mechanism, key, lambda: self._credentials.all, await self._secret())
        find_token = None
        if self._tokens is not None:
            # Imported here: a broker without delegation tokens needs none of it.
            from fencepost.broker.network.token_users import TokenUsers

            find_token = TokenUsers(key, self._tokens).find
        return lambda _: ScramExchange(mechanism, users.find, secrets.token_urlsafe(24), find_token)

    async def _secret(self) -> bytes:
        """The secret of the cluster, made by the first broker that needs it."""
        document: VersionedDocument[str] = VersionedDocument(
            self._store, SECRET_KEY, read=_read_secret, write=lambda content: content
        )
        made = secrets.token_hex(32)
        return bytes.fromhex(await document.change(lambda before: None if before else made))

    # OAUTHBEARER

    async def _oauthbearer(self, listener: Listener) -> NewExchange:
        from fencepost.broker.security.sasl.claims import Expected

        expected = Expected(
            audiences=self._value("sasl.oauthbearer.expected.audience", listener, oauthbearer.MECHANISM),
            issuer=self._value("sasl.oauthbearer.expected.issuer", listener, oauthbearer.MECHANISM) or None,
            name_claim=self._value("sasl.oauthbearer.sub.claim.name", listener, oauthbearer.MECHANISM),
            skew_s=self._value("sasl.oauthbearer.clock.skew.seconds", listener, oauthbearer.MECHANISM),
        )
        validate = await self._token_validator(listener, expected)
        return lambda _: oauthbearer.OAuthBearerExchange(validate)

    async def _token_validator(self, listener: Listener, expected: Expected) -> ValidateToken:
        mechanism = oauthbearer.MECHANISM
        url = self._value("sasl.oauthbearer.jwks.endpoint.url", listener, mechanism)
        is_unsecured = self._value("fencepost.sasl.oauthbearer.unsecured", listener, mechanism)
        where = f"the listener {listener.name} enables OAUTHBEARER"
        if is_unsecured:
            return self._unsecured(listener, expected, has_keys=bool(url))
        if not url:
            raise StartError(
                f"{where} and has no keys to verify tokens: set sasl.oauthbearer.jwks.endpoint.url to the JSON Web Key "
                "Set of the authorization server, https://… or file:///…"
            )
        try:
            from fencepost.broker.security.sasl.jwks import Jwks, JwksError, JwksSettings, TokenValidator, check_url
        except ModuleNotFoundError as error:
            raise StartError(
                f"{where}, which needs the library {error.name}: pip install 'fencepost[security]'"
            ) from None
        try:
            check_url(url)
            jwks = Jwks(
                JwksSettings(
                    url,
                    self._value("sasl.oauthbearer.jwks.endpoint.refresh.ms", listener, mechanism),
                    self._value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", listener, mechanism),
                    self._value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", listener, mechanism),
                ),
                loop=self._loop,
            )
            self._opened.callback(jwks.close)
            await jwks.open()
        except (ValueError, JwksError) as error:
            raise StartError(f"listener {listener.name}, sasl.oauthbearer.jwks.endpoint.url: {error}") from None
        return TokenValidator(jwks, expected, self._clock).validate

    def _unsecured(self, listener: Listener, expected: Expected, *, has_keys: bool) -> ValidateToken:
        from fencepost.broker.security.sasl.claims import validate_unsecured

        if has_keys:
            raise StartError(
                f"listener {listener.name}: fencepost.sasl.oauthbearer.unsecured and "
                "sasl.oauthbearer.jwks.endpoint.url exclude each other: remove one"
            )
        if not listener.is_for_this_machine:
            raise StartError(
                f"listener {listener.name}: fencepost.sasl.oauthbearer.unsecured lets everybody in under any name, so "
                "it is only allowed on a listener of this machine, such as 127.0.0.1"
            )
        log.warning(
            "unsigned_tokens_accepted",
            listener=listener.name,
            hint="every program on this machine can take any name: fencepost.sasl.oauthbearer.unsecured",
        )
        return lambda token: validate_unsecured(token, expected, self._clock.now_ms())


class AllPasswords:
    """The users of the settings and those of a file; of a user in both, the settings count."""

    def __init__(self, clear: ClearPasswords, file: UsersFile) -> None:
        self._clear = clear
        self._file = file

    def has(self, name: str) -> bool:
        return self._clear.has(name) or self._file.has(name)

    async def check(self, name: str, password: str, host: str) -> bool:
        """Whether there is such a user with this password. All steps are taken for every name.

        Raises TooManyWaitingError.
        """
        is_hashed = await self._file.check(name, password, host)
        is_clear = self._clear.check(name, password)
        return is_clear if self._clear.has(name) else is_hashed


def _read_secret(content: Any) -> str:
    secret = "" if content is None else text_of(content, "the secret")
    bytes.fromhex(secret)
    return secret
