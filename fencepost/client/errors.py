"""Errors between a client and a cluster, each as a sentence for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol.errors import ErrorCode

DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class ClusterError(Exception):
    """The cluster could not be asked, or refused; the message is a whole sentence without a full stop."""


class UnreachableError(ClusterError):
    """No broker answers at the address, or it went away."""


class NoAnswerError(UnreachableError):
    """A broker did not answer within its time. The request may have been carried out."""


class TlsError(UnreachableError):
    """TLS failed: a certificate, or a side without TLS. The message has OpenSSL's name of the reason."""


class LogInNeededError(ClusterError):
    """The cluster serves nobody who has not logged in. mechanisms: those that it offers, maybe none."""

    def __init__(self, mechanisms: Iterable[str] = ()) -> None:
        self.mechanisms = tuple(mechanisms)
        super().__init__("this cluster needs a log-in")


class LogInRefusedError(ClusterError):
    """The cluster refused the user or the password."""


class NotServedError(ClusterError):
    """The broker does not have the API, or no version of it that the client has."""


class RefusedError(ClusterError):
    """The broker answered with an error code."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = code
        self.name = error_name(code)
        self.is_denied = code in DENIED
        super().__init__(f"the broker refused: {self.name}" + (f" ({message})" if message else ""))


def error_name(code: int) -> str:
    """Kafka's name of an error code: `UNKNOWN_TOPIC_OR_PARTITION`."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def check(code: int, message: str | None = None) -> None:
    """Raise RefusedError unless the code is 0."""
    if code:
        raise RefusedError(code, message)


def tls_failure(where: str, error: OSError) -> TlsError:
    """The TlsError for an ssl.SSLError: this module does without `ssl`."""
    reason, words = (getattr(error, name, None) for name in ("reason", "verify_message"))
    return TlsError(f"TLS with {where} failed: {reason or error}" + (f" ({words})" if words else ""))


def system_reason(error: OSError) -> str:
    """The operating system's reason for a failed connection."""
    return (error.strerror or str(error)).lower()
