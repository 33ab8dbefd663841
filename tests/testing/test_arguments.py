"""Arguments of a test's helpers."""

from __future__ import annotations

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.testing.arguments import bytes_of, check_requests_have, existing, text_of
from fencepost.testing.errors import MisuseError


@pytest.mark.parametrize(
    ("chosen", "key", "said"),
    [
        ({"topic": "orders"}, ApiKey.END_TXN, "names no topics"),
        ({"partition": 0}, ApiKey.HEARTBEAT, "names no topics"),
        ({"transactional_id": "till-1"}, ApiKey.FETCH, "has no transactional id"),
        ({"group": "billing"}, ApiKey.PRODUCE, "names no group"),
    ],
)
def test_a_choice_by_something_that_no_such_request_has_is_refused(
    chosen: dict[str, object], key: ApiKey, said: str
) -> None:
    with pytest.raises(MisuseError, match=said):
        check_requests_have(chosen, key, key.name)
    check_requests_have(chosen, None, "")
    check_requests_have(dict.fromkeys(chosen), key, key.name)


def test_the_name_that_was_probably_meant_is_given() -> None:
    assert existing("orders", {"orders": 1}.get, list, "missing") == 1
    with pytest.raises(MisuseError, match=r"there is no topic; did you mean 'orders'\?"):
        existing("order", {"orders": 1}.get, lambda: ["orders"], "there is no topic")


def test_content_is_bytes_text_or_nothing() -> None:
    assert (bytes_of("ä"), bytes_of(b"x"), bytes_of(None)) == ("ä".encode(), b"x", None)
    with pytest.raises(MisuseError, match="is no content of a record"):
        bytes_of({"a": 1})  # type: ignore[arg-type]


def test_a_setting_is_written_as_in_a_file() -> None:
    assert (text_of(True), text_of(1.5), text_of("x")) == ("true", "1.5", "x")
