"""What a request makes of the configs of a resource."""

from __future__ import annotations

import pytest

from fencepost.broker.config import (
    TOPIC_SETTINGS,
    Alteration,
    AlterationRefusal,
    Setting,
    alter_configs,
    check_alterations,
)
from fencepost.protocol.errors import ErrorCode

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def altered(current: dict[str, str], *alterations: tuple[str, int, str | None]) -> dict[str, str] | AlterationRefusal:
    def setting_of(name: str) -> Setting | None:
        return TOPIC_SETTINGS[name].setting if name in TOPIC_SETTINGS else None

    return alter_configs(
        current,
        [Alteration(*alteration) for alteration in alterations],
        setting_of=setting_of,
        default_of=lambda _: "delete",
    )


def test_set_and_delete_leave_the_other_configs_alone() -> None:
    current = {"retention.ms": "1", "flush.ms": "2"}
    assert altered(current, ("retention.ms", SET, "5"), ("segment.ms", SET, "9")) == {
        "retention.ms": "5",
        "flush.ms": "2",
        "segment.ms": "9",
    }
    assert altered(current, ("retention.ms", DELETE, None)) == {"flush.ms": "2"}
    assert current == {"retention.ms": "1", "flush.ms": "2"}


def test_an_unset_config_can_be_deleted_with_any_name() -> None:
    assert altered({}, ("no.such.config", DELETE, None)) == {}


@pytest.mark.parametrize(
    ("current", "operation", "value", "expected"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact"}, APPEND, "delete,compact", "compact,delete"),
        ({"cleanup.policy": "compact"}, APPEND, "delete,", "compact,delete"),
        ({}, SUBTRACT, "delete", ""),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": "delete"}, SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": ""}, APPEND, "compact", "compact"),
    ],
)
def test_lists_are_appended_to_and_subtracted_from_without_repetition(
    current: dict[str, str], operation: int, value: str, expected: str
) -> None:
    assert altered(current, ("cleanup.policy", operation, value)) == {"cleanup.policy": expected}


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", "compact,"), (",delete", "compact,,delete"), ("delete, compact", "compact,delete, compact")],
)
def test_an_appended_value_is_accepted_unchecked(value: str, expected: str) -> None:
    assert altered({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, value)) == {"cleanup.policy": expected}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such.config"])
def test_only_lists_can_be_appended_to(name: str, operation: int) -> None:
    refusal = altered({}, (name, operation, "1"))
    assert isinstance(refusal, AlterationRefusal)
    assert refusal.error is ErrorCode.INVALID_CONFIG
    assert name in str(refusal.message)


def test_an_operation_that_there_is_not_is_refused_as_kafka_does() -> None:
    assert altered({}, ("retention.ms", 9, "1")) == AlterationRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)


@pytest.mark.parametrize(
    ("alterations", "message"),
    [
        ([("a", SET, None), ("b", APPEND, None)], "Null value not supported for : a, b"),
        ([("a", SET, "1"), ("a", DELETE, None)], "Error due to duplicate config keys"),
    ],
)
def test_a_missing_value_and_a_repeated_name_are_refused(
    alterations: list[tuple[str, int, str | None]], message: str
) -> None:
    refusal = check_alterations([Alteration(*alteration) for alteration in alterations])
    assert refusal == AlterationRefusal(ErrorCode.INVALID_REQUEST, message)


def test_a_deletion_needs_no_value() -> None:
    assert check_alterations([Alteration("a", DELETE, None)]) is None
