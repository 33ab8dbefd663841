"""Checks of the security settings together: each that promises protection is read by some listener, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.broker.config.listeners import Listener, inter_broker_listener, parse_http_listener
from fencepost.broker.config.password import Password
from fencepost.broker.config.settings import SETTINGS, Settings, scoped_name, setting_of_listener


def protection_problems(settings: Settings, listeners: Sequence[Listener]) -> list[str]:
    """One line for each security setting that has no effect or cannot be used, with its source and the remedy."""
    try:
        http = parse_http_listener(settings)
    except ValueError as error:
        return [f"{settings.origins.get('fencepost.http.listener', 'default')}: {error}"]
    encrypted = listeners if http is None or not http.protocol.uses_tls else [*listeners, http]
    problems = [*_unread_settings(settings, encrypted), *_unreadable_secrets(settings)]
    try:
        inter_broker_listener(settings, listeners)
    except ValueError as error:
        problems.append(f"{settings.origins.get(str(error).partition(':')[0], 'default')}: {error}")
    for listener in encrypted:
        if listener.protocol.uses_tls:
            problems += _certificate_problems(settings, listener)
    return problems


def _unread_settings(settings: Settings, listeners: Sequence[Listener]) -> Iterator[str]:
    by_name = {listener.name.lower(): listener for listener in listeners}
    for name, origin in settings.origins.items():
        scoped = scoped_name(name)
        setting = name if scoped is None else scoped.setting
        if not setting.startswith(("ssl.", "sasl.")) or setting not in SETTINGS:
            continue
        if scoped is not None and scoped.listener not in by_name:
            yield f"{origin}: {name}: there is no listener {scoped.listener.upper()}, so nothing reads it"
            continue
        readers = listeners if scoped is None else [by_name[scoped.listener]]
        if not any(_reads(listener, setting) for listener in readers):
            wanted = "SSL or SASL_SSL" if setting.startswith("ssl.") else "SASL_SSL or SASL_PLAINTEXT"
            which = "no listener has" if scoped is None else f"the listener {scoped.listener.upper()} has not"
            yield (
                f"{origin}: {name}: nothing reads it, as {which} the protocol {wanted}; set it in "
                "listener.security.protocol.map or in the name of the listener, or remove this setting"
            )


def _reads(listener: Listener, setting: str) -> bool:
    return listener.protocol.uses_tls if setting.startswith("ssl.") else listener.protocol.uses_sasl


def _unreadable_secrets(settings: Settings) -> Iterator[str]:
    for name, origin in settings.origins.items():
        setting = SETTINGS.get(setting_of_listener(name) or name)
        if setting is None or not setting.is_secret:
            continue
        text = settings.of_listeners.get(name)
        secret = settings.value(name) if text is None else Password(text)
        try:
            secret.reveal()
        except ValueError as error:
            yield f"{origin}: {name}: {error}"


def _certificate_problems(settings: Settings, listener: Listener) -> Iterator[str]:
    name = listener.name
    has_file = settings.for_listener("ssl.keystore.location", name)
    key = settings.for_listener("ssl.keystore.key", name)
    chain = settings.for_listener("ssl.keystore.certificate.chain", name)
    if not has_file and not (key and chain):
        yield (
            f"listeners: {name} has the protocol {listener.protocol}, but no certificate; set ssl.keystore.location to "
            "a PEM file with the private key and its certificate"
        )
