"""FindCoordinator as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tests.protocol.messages.golden import assert_bytes


def test_one_key_is_asked_for_until_version_3() -> None:
    request = FindCoordinatorRequest(key="g", key_type=1)
    assert_bytes(request, 3, "02 67 01 00")


def test_many_keys_are_asked_for_from_version_4_on() -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    assert_bytes(request, 4, "01 03 02 61 02 62 00")


def test_each_key_has_a_coordinator_or_an_error() -> None:
    reply = FindCoordinatorResponse(
        coordinators=[
            Coordinator(key="a", node_id=1, host="h", port=9092, error_message=None),
            Coordinator(key="b", node_id=-1, port=-1, error_code=15, error_message="no"),
        ]
    )
    assert_bytes(
        reply,
        4,
        "00 00 00 00 03 02 61 00 00 00 01 02 68 00 00 23 84 00 00 00 00 02 62 ff ff ff ff 01 ff ff ff ff",
        "00 0f 03 6e 6f 00 00",
    )
