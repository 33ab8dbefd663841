"""Forms are read as browsers send them."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import Request

from fencepost.console.web.forms import LONGEST_BODY_BYTES, hidden_field, read_form
from fencepost.console.web.visit import BadFormError


def posted(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def test_fields_are_read_with_empty_ones() -> None:
    assert await read_form(posted(b"name=a+b%26&empty=&name=last")) == {"name": "last", "empty": ""}


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a=%ff", b"&".join(b"a=1" for _ in range(300))])
async def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(BadFormError, match="cannot be read"):
        await read_form(posted(body))


async def test_half_of_a_surrogate_pair_is_refused_as_it_can_be_in_no_page_and_no_request() -> None:
    with pytest.raises(BadFormError, match="half of a surrogate pair"):
        await read_form(posted(b"csrf~=%5Cud800"))


async def test_a_form_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadFormError, match="at most 1,048,576 bytes"):
        await read_form(posted(b"x" * (LONGEST_BODY_BYTES + 1)))


@pytest.mark.parametrize(
    "value",
    ["orders", "a\nb", "a\r\nb\r\n", "\0", "back\\slash", "\\u000a", "\n\\u000a\\\\", "\u202e<&\"'\x85\x1b", "~", 7],
)
async def test_a_hidden_field_comes_back_as_it_was(value: object) -> None:
    """As a browser sends it: a lone line feed as two characters, NUL as a mark."""
    found = re.fullmatch(r'<input type="hidden" name="(.*)" value="(.*)">', hidden_field("id", value), re.DOTALL)
    assert found
    seen = unescape(found[2]).replace("\0", "\ufffd").replace("\r\n", "\n")
    body = urlencode({found[1]: seen.replace("\n", "\r\n")}).encode()
    assert await read_form(posted(body)) == {"id": str(value)}
