"""Client metrics of one node: the known client instances, and the series that they push.

Source: KIP-714; Kafka's ClientMetricsManager.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from fencepost.broker.config.client_metrics_settings import DEFAULT_INTERVAL_MS
from fencepost.broker.hosting.client_metrics_configs import PATTERN_MEMORY_BYTES
from fencepost.broker.kernel.clock import Clock, steady
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.telemetry.client_instance import ClientInstance
from fencepost.broker.telemetry.client_series import ClientSeries
from fencepost.broker.telemetry.compiled_subscriptions import compile_subscriptions
from fencepost.broker.telemetry.otlp import OtlpError, read_points
from fencepost.broker.telemetry.subscriptions import Subscription, subscription_id, wanted_of
from fencepost.protocol.compression import Codec, decompress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError

if TYPE_CHECKING:
    from fencepost.broker.config import Settings
    from fencepost.broker.hosting.client_metrics_configs import ClientMetricsConfigs

MAXIMUM_INSTANCES: Final = 16_384
"""As in Kafka. Beyond it, the instance without a request for longest is forgotten."""
MOST_OF_A_CONNECTION: Final = 16
"""Instances with one connection; a client has one, and nobody else's is forgotten for more."""
LARGEST_DECOMPRESSED_BYTES: Final = 2 * 1024 * 1024
"""Many times a usual push; decompressing takes some milliseconds with any codec."""
LONGEST_CLIENT_ID: Final = 256
ZERO_ID: Final = bytes(16)
RESERVED_IDS: Final = frozenset({ZERO_ID, bytes(15) + b"\x01"})


class ClientConnection(Protocol):
    """A client's connection. client_software: its library's name and version, as ApiVersions names them."""

    client_software: tuple[str, str]

    @property
    def client_host(self) -> str: ...
    @property
    def client_port(self) -> int: ...
    def add_close_callback(self, callback: Callable[[], None]) -> None: ...
    def __hash__(self) -> int: ...


class ClientMetrics:
    """The client instances of this node. Times are those of a clock that is never set."""

    def __init__(
        self, configs: ClientMetricsConfigs, settings: Settings, clock: Clock, new_instance_id: Callable[[], bytes]
    ) -> None:
        self._configs = configs
        self._settings = settings
        self._clock = steady(clock)
        self._new_instance_id = new_instance_id
        self._instances: OrderedDict[bytes, tuple[ClientInstance, ClientConnection]] = OrderedDict()
        self._by_connection: dict[ClientConnection, OrderedDict[bytes, None]] = {}
        self._series = ClientSeries()
        self._compiled_of: object = None
        self._compiled: list[Subscription] = []
        self._version = 0

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def left_out(self) -> int:
        """Points of the clients' last pushes that are not kept."""
        return self._series.left_out

    def get(
        self, client_instance_id: bytes, client_id: str | None, connection: ClientConnection
    ) -> tuple[ErrorCode, ClientInstance]:
        """Ask a client for metrics; with the id of zeros, it gets one. Refuses: THROTTLING_QUOTA_EXCEEDED."""
        known_id = client_instance_id if client_instance_id != ZERO_ID else self._new_instance_id()
        instance = self._instance(known_id, client_id, connection)
        return instance.get(self._clock.now_ms()), instance

    async def push(
        self,
        client_instance_id: bytes,
        client_id: str | None,
        connection: ClientConnection,
        *,
        subscription_id: int,
        compression_type: int,
        is_last: bool,
        content: bytes,
    ) -> ErrorCode:
        """Take the metrics of a client. Refuses as `ClientInstance.push`, and INVALID_RECORD (metrics that cannot be
        read, or are larger than `telemetry.max.bytes` or `LARGEST_DECOMPRESSED_BYTES` when decompressed).
        """
        if client_instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(client_instance_id, client_id, connection)
        error = instance.push(
            subscription_id,
            compression_type,
            len(content),
            self._clock.now_ms(),
            is_last=is_last,
            maximum_bytes=self._settings.telemetry_max_bytes,
        )
        if error is not ErrorCode.NONE or not content or not self._settings.fencepost_http_listener:
            return error
        try:
            most = min(self._settings.telemetry_max_bytes, LARGEST_DECOMPRESSED_BYTES)
            plain = decompress(Codec(compression_type), content, maximum_bytes=most)
            if len(plain) > most:
                return ErrorCode.INVALID_RECORD
            await run_in_slices(self._read(instance, memoryview(plain)), SLICE_S)
        except (DecodeError, OtlpError):
            return ErrorCode.INVALID_RECORD
        return ErrorCode.NONE

    def _read(self, instance: ClientInstance, content: memoryview) -> SlicedWork[None]:
        key = instance.client_instance_id
        self._series.begin_push(key)
        for point in read_points(content):
            if point is None:
                yield
                continue
            known = self._instances.get(key)
            if known is None or known[0] is not instance:
                return  # it has gone meanwhile
            self._series.take(key, point, self._settings.fencepost_client_metrics_max_series)

    def series_count(self, connection: ClientConnection) -> int:
        """Series of the clients whose last telemetry request came over a connection."""
        return sum(map(self._series.count_of, self._by_connection.get(connection, ())))

    def series(self) -> Iterator[tuple[ClientInstance, str, str, float] | None]:
        """Every series with its client, metric, attributes and value; None is a moment at which others may run."""
        self._expire()
        for key in list(self._instances):
            yield None
            if key in self._instances:
                instance = self._instances[key][0]
                for (metric, attributes), value in self._series.of(key):
                    yield instance, metric, attributes, value

    def _instance(self, key: bytes, client_id: str | None, connection: ClientConnection) -> ClientInstance:
        now_ms = self._clock.now_ms()
        self._compile()
        known = self._instances.get(key)
        if known is not None and known[0].expires_ms <= now_ms:
            self._drop(key)
            known = None
        if known is None:
            instance = ClientInstance(key, (client_id or "")[:LONGEST_CLIENT_ID])
        else:
            instance, before = known
            if before is not connection:
                self._leave(key, before)
        self._join(key, connection)
        self._instances[key] = instance, connection
        self._instances.move_to_end(key)
        if known is None or instance.subscriptions_version != self._version:
            wanted = wanted_of(self._compiled, _attributes(key, client_id, connection), DEFAULT_INTERVAL_MS)
            instance.ask(wanted, subscription_id(wanted, key), self._version, now_ms)
        instance.seen(now_ms)
        if len(self._instances) > MAXIMUM_INSTANCES:
            self._expire()
        while len(self._instances) > MAXIMUM_INSTANCES:
            self._drop(next(iter(self._instances)))
        return instance

    def _compile(self) -> None:
        """Compile the subscriptions if they have changed since the last request."""
        if self._compiled_of is not self._configs.all:
            self._compiled_of = self._configs.all
            self._compiled = compile_subscriptions(self._configs.all.values(), PATTERN_MEMORY_BYTES)
            self._version += 1

    def _join(self, key: bytes, connection: ClientConnection) -> None:
        keys = self._by_connection.get(connection)
        if keys is None:
            keys = self._by_connection[connection] = OrderedDict()
            connection.add_close_callback(lambda: self._closed(connection))
        keys[key] = None
        keys.move_to_end(key)
        if len(keys) > MOST_OF_A_CONNECTION:
            self._drop(next(iter(keys)))

    def _leave(self, key: bytes, connection: ClientConnection) -> None:
        """The connection stays known until it closes, so that its callback is added once."""
        self._by_connection.get(connection, OrderedDict()).pop(key, None)

    def _closed(self, connection: ClientConnection) -> None:
        for key in self._by_connection.pop(connection, ()):
            self._drop(key, is_closed=True)

    def _drop(self, key: bytes, *, is_closed: bool = False) -> None:
        _, connection = self._instances.pop(key)
        self._series.drop(key)
        if not is_closed:
            self._leave(key, connection)

    def _expire(self) -> None:
        now_ms = self._clock.now_ms()
        for key in [key for key, (instance, _) in self._instances.items() if instance.expires_ms <= now_ms]:
            self._drop(key)


def instance_text(client_instance_id: bytes) -> str:
    """An id as Kafka's tools show it."""
    return urlsafe_b64encode(client_instance_id).decode().rstrip("=")


def _attributes(key: bytes, client_id: str | None, connection: ClientConnection) -> dict[str, str]:
    software_name, software_version = connection.client_software
    found = {
        "client_instance_id": instance_text(key),
        "client_software_name": software_name,
        "client_software_version": software_version,
        "client_source_address": connection.client_host,
        "client_source_port": str(connection.client_port),
    }
    return found if client_id is None else found | {"client_id": client_id}
