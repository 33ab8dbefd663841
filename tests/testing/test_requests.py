"""Requests that a broker under test has got."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import HeartbeatRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from fencepost.protocol.schema import encode
from fencepost.testing import requests
from fencepost.testing.requests import RequestLog, SeenRequest


def seen(message: Any, api_key: ApiKey, version: int = 1, number: int = 1) -> SeenRequest:
    return SeenRequest(number, 0, api_key, version, "client", 1, bytes(encode(message, version)))


END_TXN = EndTxnRequest(transactional_id="shop", producer_id=5, producer_epoch=1, committed=True)


def test_a_request_shows_its_fields_and_its_transactional_id() -> None:
    request = seen(END_TXN, ApiKey.END_TXN)
    assert request.api == "EndTxn"
    assert request.fields.producer_id == 5
    assert (request.transactional_id, request.groups, request.partitions) == ("shop", [], [])
    assert str(request) == "EndTxn transactional_id='shop' from 'client': waits"


def test_a_request_of_a_group_names_the_group_and_no_transactional_id() -> None:
    request = seen(HeartbeatRequest(group_id="readers", member_id="m"), ApiKey.HEARTBEAT)
    assert (request.transactional_id, request.groups) == (None, ["readers"])


def test_the_error_of_a_reply_has_kafkas_name() -> None:
    request = seen(END_TXN, ApiKey.END_TXN)
    assert request.error is None
    correlation_id = bytes(4)
    request.answer = correlation_id + bytes(encode(EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED), 1))
    assert request.error == "PRODUCER_FENCED"


def test_the_log_keeps_the_latest_within_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    log = RequestLog()
    monkeypatch.setattr(requests, "MOST_BYTES", 3 * len(seen(END_TXN, ApiKey.END_TXN).body))
    for _ in range(5):
        log.add(lambda number: seen(END_TXN, ApiKey.END_TXN, number=number))
    assert [one.number for one in log.latest()] == [3, 4, 5]
