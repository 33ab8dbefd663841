"""Forms are read as browsers send them."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from fencepost.console.web.forms import LONGEST_BODY_BYTES, read_form
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


async def test_a_form_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadFormError, match="at most 1,048,576 bytes"):
        await read_form(posted(b"x" * (LONGEST_BODY_BYTES + 1)))
