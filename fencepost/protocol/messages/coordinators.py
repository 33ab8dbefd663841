"""FindCoordinator: the broker that coordinates a group or a transactional id (KIP-699 for several at once)."""

from fencepost.protocol.schema import field, int8, int16, int32, message, struct


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Ask for coordinators: of one key, or from version 4 on of several. Types: 0 group, 1 transaction, 2 share."""

    key: str = field(versions="0-3", default="")
    key_type: int8 = field(versions="1+", default=0)
    coordinator_keys: list[str] = field(versions="4+", default=[])


@struct
class Coordinator:
    """Address of the coordinator of a key. With an error the node is -1, its host empty, its port -1.

    Errors: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

    key: str = ""
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """One coordinator, or from version 4 on a list in which each has its own error."""

    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = field(versions="0-3", default=0)
    error_message: str | None = field(versions="1-3", default="")
    node_id: int32 = field(versions="0-3", default=0)
    host: str = field(versions="0-3", default="")
    port: int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+", default=[])
