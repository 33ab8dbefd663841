"""TLS of the console's own port: a certificate and its key from files, which are read again when they change."""

from __future__ import annotations

import ssl
from typing import Final

from fencepost.console.options import OptionError, TlsFiles

Fingerprint = tuple[tuple[int, int, int] | None, ...]

_REASONS: Final = {
    "KEY_VALUES_MISMATCH": "the key is not the one of the certificate",
    "EE_KEY_TOO_SMALL": "the key is too short",
}
_NO_PEM: Final = "a certificate, or its key, is not there in PEM"
_WRONG_PASSWORD: Final = "the password is not the one of the key"


def fingerprint(files: TlsFiles) -> Fingerprint:
    """Number, size and time of each file, which change when it is replaced; None for one that is not there."""
    found: list[tuple[int, int, int] | None] = []
    for path in (files.certificate, files.key or files.certificate):
        try:
            status = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


class ServerTls:
    """The context of a server, whose certificate may be replaced. Raises OptionError for files that cannot be used."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = fingerprint(files)
        self._current = _load(files)
        self.context = _load(files)
        # Each handshake takes the certificate that is current at that time: one that cannot be used never gets so far.
        self.context.sni_callback = self._choose

    def reload(self) -> str | None:
        """Read the files again if they have changed. Returns a sentence on it; None if there is nothing to say."""
        found = fingerprint(self._files)
        if found == self._seen:
            return None
        self._seen = found
        try:
            self._current = _load(self._files)
        except OptionError as error:
            return f"the certificate stays the one before: {error}"
        return f"the certificate was read again from {self._files.names}"

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._current


def _load(files: TlsFiles) -> ssl.SSLContext:
    """Raises OptionError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    is_encrypted = False

    def password() -> str:
        # OpenSSL would ask at the terminal.
        nonlocal is_encrypted
        is_encrypted = True
        if files.password is None:
            raise OptionError(f"the key of {files.names} is encrypted: name the file of its password")
        return files.password

    try:
        context.load_cert_chain(files.certificate, files.key, password)
    except OptionError:
        raise
    except ssl.SSLError as error:
        reason = _REASONS.get(error.reason or "") or (_WRONG_PASSWORD if is_encrypted else _NO_PEM)
        raise OptionError(f"{files.names} cannot be used: {reason}") from None
    except OSError as error:
        missing = next((one for one in (files.certificate, files.key) if one and not one.exists()), files.names)
        raise OptionError(f"{missing} cannot be read: {(error.strerror or str(error)).lower()}") from None
    return context
