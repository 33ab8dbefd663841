"""Messages by API key."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import FAMILIES, REQUESTS, RESPONSES
from fencepost.protocol.schema import schema_of


def test_each_key_has_its_own_request_and_reply() -> None:
    for api_key in FAMILIES:
        request, reply = schema_of(REQUESTS[api_key]), schema_of(RESPONSES[api_key])
        assert request.name.removesuffix("Request") == reply.name.removesuffix("Response")
        assert list(request.versions) == list(reply.versions)
        assert (request.is_request, reply.is_request) == (True, False)
    assert REQUESTS[ApiKey.END_TXN].__name__ == "EndTxnRequest"
    assert RESPONSES[ApiKey.END_TXN].__name__ == "EndTxnResponse"


def test_a_key_that_nobody_serves_has_no_messages() -> None:
    with pytest.raises(KeyError):
        _ = REQUESTS[ApiKey.UPDATE_RAFT_VOTER]
    assert set(REQUESTS) == set(RESPONSES) == set(FAMILIES)


def test_a_family_is_imported_when_one_of_its_messages_is_used() -> None:
    code = (
        "import sys; from fencepost.protocol.messages import REQUESTS; name = 'fencepost.protocol.messages.quorum';"
        "assert name not in sys.modules; REQUESTS[55]; assert name in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
