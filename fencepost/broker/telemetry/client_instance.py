"""State of one client instance: whether it may ask for its subscription, or push, now. Pure.

Source: Kafka's ClientMetricsInstance, and the checks of ClientMetricsManager.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.telemetry.subscriptions import Wanted
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode

LEAST_EXPIRY_MS: Final = 60_000
INTERVALS_TO_EXPIRY: Final = 3
_CODECS: Final = frozenset(Codec)
_CURED_BY_ASKING: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these errors a client asks at once, before the interval is over."""


class ClientInstance:
    """A client by its instance id, from its first request until it is gone. Times are in ms.

    subscriptions_version: the version of all subscriptions that `wanted` follows from. last_error: of its last push.
    """

    __slots__ = (
        "client_id",
        "client_instance_id",
        "expires_ms",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "subscription_id",
        "subscriptions_version",
        "wanted",
    )

    def __init__(self, client_instance_id: bytes, client_id: str) -> None:
        """An instance that is asked next."""
        self.client_instance_id = client_instance_id
        self.client_id = client_id
        self.last_error = ErrorCode.NONE

    def ask(self, wanted: Wanted, subscription_id: int, subscriptions_version: int, now_ms: int) -> None:
        """Ask the client for metrics, at the start or after a change; it may send its next request at once."""
        self.wanted = wanted
        self.subscription_id = subscription_id
        self.subscriptions_version = subscriptions_version
        self.last_get_ms = self.last_push_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.seen(now_ms)

    def seen(self, now_ms: int) -> None:
        """Note a request: the instance expires some intervals later."""
        self.expires_ms = now_ms + max(LEAST_EXPIRY_MS, INTERVALS_TO_EXPIRY * self.wanted.interval_ms)

    def get(self, now_ms: int) -> ErrorCode:
        """Decide whether the client may have its subscription now, and note that it has it."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.wanted.interval_ms:
            self.last_get_ms = now_ms
        elif self.last_error not in _CURED_BY_ASKING:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.last_error = ErrorCode.NONE
        return ErrorCode.NONE

    def push(
        self,
        subscription_id: int,
        compression_type: int,
        size_bytes: int,
        now_ms: int,
        *,
        is_last: bool,
        maximum_bytes: int,
    ) -> ErrorCode:
        """Decide whether a push is taken, and note it.

        Refuses, in this order: INVALID_REQUEST (after the last push), THROTTLING_QUOTA_EXCEEDED (before the interval is
        over), UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE.
        """
        was_terminating, self.is_terminating = self.is_terminating, is_last
        self.last_error = self._push_error(
            subscription_id,
            compression_type,
            size_bytes,
            now_ms,
            was_terminating=was_terminating,
            is_last=is_last,
            maximum_bytes=maximum_bytes,
        )
        return self.last_error

    def _push_error(
        self,
        subscription_id: int,
        compression_type: int,
        size_bytes: int,
        now_ms: int,
        *,
        was_terminating: bool,
        is_last: bool,
        maximum_bytes: int,
    ) -> ErrorCode:
        if was_terminating:
            return ErrorCode.INVALID_REQUEST
        is_due = self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.wanted.interval_ms
        if is_due:
            self.last_push_ms = now_ms
        elif not is_last:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != self.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if compression_type not in _CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size_bytes > maximum_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE
