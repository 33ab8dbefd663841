"""Format strings for records print what kcat's print."""

from __future__ import annotations

import pytest

from fencepost.cli.record_format import parse_format
from tests.cli.test_records import Consumed

RECORD = Consumed(b"k", b"v\xff", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t-%p @%o %k: %s\n", b"orders-2 @7 k: v\xff\n"),
        ("%T %K %S", b"1700000000000 1 2"),
        ("%h", b"a=1,b=null"),
        (r"100%% \t\x41\\", b"100% \tA\\"),
        ("", b""),
    ],
)
def test_every_directive_is_printed(text: str, printed: bytes) -> None:
    assert parse_format(text)(RECORD) == printed


def test_null_has_a_word_and_the_size_minus_one() -> None:
    assert parse_format("%k %s %K %S")(Consumed(None, None)) == b"null null -1 -1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("%q", "%q is not known"), ("50%", "ends with %"), (r"\q", "is not known"), ("\\", "ends with")],
)
def test_what_is_no_directive_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("\\", ".")):
        parse_format(text)
