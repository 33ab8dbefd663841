"""Forms as browsers send them.

A browser sends a line feed as two characters, and a NUL as another one. A hidden field with such a value, as an id may
be, has `~` behind its name, and these characters as their numbers.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import category
from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.requests import Request

from fencepost.console.web.visit import BadFormError

LONGEST_BODY_BYTES: Final = 1 << 20
EXACT: Final = "~"
_ESCAPED: Final = re.compile(r"\\(?:\\|u([0-9a-f]{4}))")


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
    fields = dict(_as_meant(name, value) for name, value in pairs)
    if any(category(letter) == "Cs" for value in fields.values() if not value.isascii() for letter in value):
        raise BadFormError("the form has half of a surrogate pair")  # only as a number: it can be in no text of UTF-8
    return fields


def _as_meant(name: str, value: str) -> tuple[str, str]:
    if not name.endswith(EXACT):
        return name, value
    return name.removesuffix(EXACT), _ESCAPED.sub(lambda one: chr(int(one[1], 16)) if one[1] else "\\", value)


def hidden_field(name: str, value: object) -> Markup:
    """A hidden field that comes back with the same value, with any characters in it."""
    text = str(value)
    if any(category(letter) == "Cc" for letter in text.replace("\r\n", "")):
        name += EXACT
        text = "".join(
            f"\\u{ord(letter):04x}" if category(letter) == "Cc" else "\\\\" if letter == "\\" else letter
            for letter in text
        )
    return Markup('<input type="hidden" name="{}" value="{}">').format(name, text)
