"""coordinators"""

from protocol.schema import field, int8, int16, int32, message, struct


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """FindCoordinatorRequest."""

    key: str = field(versions="0-3", default="")
    key_type: int8 = field(versions="1+", default=0)
    coordinator_keys: list[str] = field(versions="4+", default=[])


@struct
class Coordinator:
    """Coordinator."""

    key: str = ""
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """FindCoordinatorResponse."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = field(versions="0-3", default=0)
    error_message: str | None = field(versions="1-3", default="")
    node_id: int32 = field(versions="0-3", default=0)
    host: str = field(versions="0-3", default="")
    port: int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+", default=[])
