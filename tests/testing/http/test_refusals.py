"""Statuses and sentences for errors."""

from __future__ import annotations

import pytest

from fencepost.broker.network.server import StartError
from fencepost.testing.errors import MisuseError, RefusedError, WaitedInVainError
from fencepost.testing.http.brokers import NoSuchBrokerError, NoSuchFaultError, TooManyBrokersError
from fencepost.testing.http.kinds import InputError
from fencepost.testing.http.refusals import KINDS, STATUSES, Refusal, refusal_of


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (InputError("x"), Refusal(400, "input", "x")),
        (NoSuchBrokerError("x"), Refusal(404, "not_found", "x")),
        (NoSuchFaultError("x"), Refusal(404, "not_found", "x")),
        (TooManyBrokersError("x"), Refusal(429, "too_much", "x")),
        (MisuseError("x"), Refusal(409, "misuse", "x")),
        (RefusedError("INVALID_PARTITIONS", "x"), Refusal(409, "refused", "x", code="INVALID_PARTITIONS")),
        (WaitedInVainError("x\n\ny\n\nz"), Refusal(409, "waited_in_vain", "x", description="y\n\nz")),
        (StartError("x"), Refusal(409, "misuse", "the broker does not start: x")),
        (ConnectionResetError("x"), Refusal(409, "misuse", "the broker does not answer: x")),
        (TimeoutError("x"), Refusal(409, "misuse", "the broker does not answer: x")),
    ],
)
def test_each_error_has_a_status_and_a_sentence(error: Exception, refusal: Refusal) -> None:
    found = refusal_of(error)
    assert found == refusal
    assert found.kind in KINDS
    assert found.status in STATUSES


def test_an_error_that_nobody_expects_has_none() -> None:
    assert refusal_of(ZeroDivisionError()) is None
