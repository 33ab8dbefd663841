"""What a cluster refuses, as sentences."""

from __future__ import annotations

import pytest

from fencepost.client.errors import LogInNeededError, RefusedError, check, error_name
from fencepost.protocol.errors import ErrorCode


def test_a_refusal_has_kafkas_name_and_the_brokers_words() -> None:
    with pytest.raises(RefusedError) as refused:
        check(ErrorCode.TOPIC_ALREADY_EXISTS, "there is one")
    assert str(refused.value) == "the broker refused: TOPIC_ALREADY_EXISTS (there is one)"
    assert not refused.value.is_denied


def test_a_missing_right_is_marked_as_denied() -> None:
    with pytest.raises(RefusedError) as refused:
        check(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert refused.value.is_denied
    assert str(refused.value) == "the broker refused: GROUP_AUTHORIZATION_FAILED"


def test_no_error_is_not_refused_and_an_unknown_code_has_its_number() -> None:
    check(0)
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(9_999) == "error 9999"


def test_a_needed_log_in_has_the_mechanisms_on_offer() -> None:
    assert LogInNeededError(iter(["PLAIN", "SCRAM-SHA-256"])).mechanisms == ("PLAIN", "SCRAM-SHA-256")
