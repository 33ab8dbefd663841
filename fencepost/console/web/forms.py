"""Forms as browsers send them."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from fencepost.console.web.visit import BadFormError

LONGEST_BODY_BYTES: Final = 1 << 20


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises BadFormError."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY_BYTES:
            raise BadFormError(f"a form may have at most {LONGEST_BODY_BYTES:,} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200, errors="strict")
    except ValueError:
        raise BadFormError("the form cannot be read") from None
    return dict(pairs)
