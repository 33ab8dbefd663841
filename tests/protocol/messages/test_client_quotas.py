"""DescribeClientQuotas and AlterClientQuotas as bytes."""

from __future__ import annotations

from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from tests.protocol.messages.golden import assert_bytes


def test_a_filter_has_a_kind_of_match_for_each_part() -> None:
    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type="user", match_type=0, match="a"),
            ComponentData(entity_type="client-id", match_type=1, match=None),
        ],
        strict=True,
    )
    assert_bytes(request, 0, "00 00 00 02 00 04 75 73 65 72 00 00 01 61 00 09 63 6c 69 65 6e 74 2d 69 64 01 ff ff 01")


def test_a_quota_is_a_float_of_64_bits() -> None:
    request = AlterClientQuotasRequest(
        entries=[
            AlterEntryData(
                entity=[EntityData(entity_type="user", entity_name=None)],
                ops=[OpData(key="request_percentage", value=12.5)],
            )
        ],
        validate_only=True,
    )
    assert_bytes(
        request,
        1,
        "02 02 05 75 73 65 72 00 00 02 13 72 65 71 75 65 73 74 5f 70 65 72 63 65 6e 74 61 67 65 40 29 00",
        "00 00 00 00 00 00 00 00 01 00",
    )
