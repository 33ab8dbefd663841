"""Arguments from address, query and body."""

from __future__ import annotations

import pytest

from fencepost.testing.http.arguments import arguments_of
from fencepost.testing.http.kinds import InputError
from fencepost.testing.http.operations import OPERATIONS

BY_NAME = {operation.name: operation for operation in OPERATIONS}


def test_what_is_left_out_has_its_default() -> None:
    found = arguments_of(BY_NAME["records"], {"broker": "b1"}, "topic=a%2Fb&count=3&timeout=0.5", b"")
    assert found == {
        "broker": "b1",
        "topic": "a/b",
        "count": 3,
        "partition": None,
        "isolation": "read_committed",
        "timeout": 0.5,
        "encoding": "utf-8",
        "skip": 0,
        "limit": 1000,
    }


def test_a_body_may_be_left_out_if_nothing_is_needed() -> None:
    assert arguments_of(BY_NAME["create_broker"], {}, "", b"") == {"settings": None, "process": False}
    given = b'{"settings": null, "process": true}'
    assert arguments_of(BY_NAME["create_broker"], {}, "", given) == {"settings": None, "process": True}


@pytest.mark.parametrize(
    ("name", "query", "body", "said"),
    [
        ("crash", "x=1", b"", "the query of crash has no field 'x', nor any other"),
        ("topic", "", b'{"name": ' + b"9" * 5000 + b"}", "the body of topic is not JSON (a number has 5,000 digits)"),
        ("topics", "", b"{}", "topics has no body: give its arguments in the query"),
        ("records", "topic=a&topic=b", b"", "the query of records has 'topic' twice"),
        ("records", "topic=%ff", b"", "the query of records cannot be read"),
        ("records", "&".join("a=1" for _ in range(200)), b"", "the query of records cannot be read"),
        ("records", "", b"", "records needs topic: name of the topic"),
        ("fence", "", b'{"transactional_id": null}', "transactional_id of fence is null: give a string"),
        ("fault", "", b"", "fault is 'x'"),
    ],
)
def test_a_mistake_is_refused_in_a_sentence(name: str, query: str, body: bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        arguments_of(BY_NAME[name], {"broker": "b1", "fault": "x"}, query, body)
    assert str(raised.value).startswith(said)
