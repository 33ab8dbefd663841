"""TLS of the listeners while the broker runs: the files in force, their renewal, and warnings before certificates
expire.

A renewal builds everything anew first, and takes effect for later connections; if it fails, the old files stay in
force.
Source: KIP-226, Kafka's SslFactory.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import time
from collections.abc import Callable, Mapping, Sequence

from fencepost.broker.config import DynamicLayers, Settings
from fencepost.broker.config.settings import scoped_name
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.security.tls_contexts import ServerTls, TlsError, server_tls

log = get_logger(__name__)

RENEWAL = Place("renewal of certificates", Policy.REPORT)
EXPIRY_CHECK = Place("check whether certificates expire", Policy.RETRY)

DAY_S = 86_400
WARNED_DAYS = 30


class ListenerTls:
    """The certificates and contexts in force on one listener."""

    def __init__(self, listener: str, in_force: ServerTls) -> None:
        self.listener = listener
        self.in_force = in_force

    @property
    def context(self) -> ssl.SSLContext:
        return self.in_force.context

    @property
    def days_left(self) -> float:
        """Days until the certificate expires; negative afterwards."""
        return (self.in_force.certificate.not_after_s - time.time()) / DAY_S


class BrokerTls:
    """TLS of all listeners that have it. Raises TlsError when it is made.

    settings: those in force; `renew` reads them again.
    """

    def __init__(self, settings: Settings, listeners: Sequence[str]) -> None:
        self._settings = settings
        self.listeners = {name: ListenerTls(name, _tls_at_start(settings, name)) for name in listeners}
        self._texts = self._dynamic_texts()
        self._renewing: asyncio.Task[None] | None = None
        self._is_renewed_again = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Log when the certificates expire, and begin to watch them."""
        for tls in self.listeners.values():
            _log_expiry(tls)
        self._timer = asyncio.get_running_loop().call_later(DAY_S, EXPIRY_CHECK.callback(self._check_expiry))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def renew(self, cause: str) -> asyncio.Task[None]:
        """Read all files again. A renewal that runs already is followed by another. cause: for the log."""
        if self._renewing is None or self._renewing.done():
            self._renewing = RENEWAL.start(self._renew(cause))
        else:
            self._is_renewed_again = True
        return self._renewing

    def settings_changed(self) -> None:
        """Renew if settings of TLS were changed at run time."""
        texts = self._dynamic_texts()
        if texts != self._texts:
            self._texts = texts
            self.renew("the settings were changed")

    def settings_repeated(self) -> None:
        """Renew if settings of TLS were set at run time: their files may have changed."""
        if self._texts:
            self.renew("the settings were set again")

    async def problem_with(self, configs: Mapping[str, str], of_this_broker: bool) -> str | None:
        """The reason why dynamic configs of this broker, or of all brokers, cannot be put in force, or None."""
        concerned = [name for name in self.listeners if any(_concerns(config, name) for config in configs)]
        if not concerned:
            return None
        layers = self._settings.layers
        tried = dataclasses.replace(self._settings, layers=DynamicLayers())
        tried.override(
            of_this_broker=configs if of_this_broker else layers.of_this_broker,
            of_all_brokers=layers.of_all_brokers if of_this_broker else configs,
        )
        try:
            for name in concerned:
                await asyncio.to_thread(server_tls, tried, name)
        except TlsError as error:
            return str(error)
        return None

    async def _renew(self, cause: str) -> None:
        self._is_renewed_again = True
        while self._is_renewed_again:
            self._is_renewed_again = False
            for tls in self.listeners.values():
                try:
                    tls.in_force = await asyncio.to_thread(server_tls, self._settings, tls.listener)
                except TlsError as error:
                    log.error(  # noqa: TRY400  # the reason says it all
                        "tls_reload_failed", reason=str(error), hint="the certificate that was in force stays"
                    )
                else:
                    log.info("tls_reloaded", listener=tls.listener, cause=cause)
                    _log_expiry(tls)

    def _check_expiry(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(DAY_S, EXPIRY_CHECK.callback(self._check_expiry))
        for tls in self.listeners.values():
            if tls.days_left < WARNED_DAYS:
                _log_expiry(tls)

    def _dynamic_texts(self) -> dict[str, str]:
        of_all_brokers, of_this_broker = _layers(self._settings)
        texts = {**of_all_brokers, **of_this_broker}
        return {name: text for name, text in texts.items() if any(_concerns(name, tls) for tls in self.listeners)}


def _concerns(config: str, listener: str) -> bool:
    scoped = scoped_name(config)
    return scoped is not None and scoped.listener == listener.lower() and scoped.setting.startswith("ssl.")


def _tls_at_start(settings: Settings, listener: str) -> ServerTls:
    """TLS by the settings in force, or by those of the start if later ones cannot be used. Raises TlsError."""
    try:
        return server_tls(settings, listener)
    except TlsError as error:
        if not any(_concerns(name, listener) for layer in _layers(settings) for name in layer):
            raise
        log.error("tls_reload_failed", reason=str(error), hint="what was set at run time is left out")  # noqa: TRY400
        return server_tls(dataclasses.replace(settings, layers=DynamicLayers()), listener)


def _layers(settings: Settings) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return settings.layers.of_all_brokers, settings.layers.of_this_broker


def _log_expiry(tls: ListenerTls) -> None:
    days = tls.days_left
    facts = tls.in_force.certificate
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts.not_after_s))
    write: Callable[..., object] = log.info if days >= WARNED_DAYS else log.warning if days > 0 else log.error
    write(
        "certificate_expires" if days > 0 else "certificate_expired",
        listener=tls.listener,
        subject=facts.subject,
        not_after=until,
        days_left=round(days, 1),
    )
