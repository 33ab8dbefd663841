"""A preview is kept for a while, in bounds, and tells what has changed since it was shown."""

from __future__ import annotations

from fencepost.console.web.previews import (
    GOOD_FOR_S,
    MOST_BYTES,
    MOST_PREVIEWS,
    Preview,
    Previews,
    differences,
    digest_of,
    packed,
)


def preview(shown_s: float = 0.0, world: bytes = b"") -> Preview:
    return Preview(b"", ("c1", "alice"), world, shown_s)


def test_a_preview_is_found_by_its_token_until_it_is_too_old() -> None:
    kept, other = Previews(), Previews()
    one = preview(100.0)
    kept.keep(one)
    assert kept.find(one.token, 100.0 + GOOD_FOR_S) is one
    assert kept.find(one.token, 101.0 + GOOD_FOR_S) is None
    assert kept.find("made-up", 100.0) is None
    assert other.find(one.token, 100.0) is None


def test_the_oldest_go_first_by_number_and_by_size() -> None:
    kept = Previews()
    shown = [preview() for _ in range(MOST_PREVIEWS + 3)]
    for one in shown:
        kept.keep(one)
    assert len(kept) == MOST_PREVIEWS
    assert kept.find(shown[2].token, 0.0) is None
    assert kept.find(shown[3].token, 0.0) is shown[3]
    large = preview(world=bytes(MOST_BYTES + 1))
    kept.keep(large)
    assert len(kept) == 1
    assert kept.find(large.token, 0.0) is large


def test_the_digest_is_of_the_change_and_of_all_its_fields() -> None:
    fields = {"name": "orders", "count": "3"}
    assert digest_of("grow", fields) == digest_of("grow", {"count": "3", "name": "orders"})
    others = [("delete", fields), ("grow", {**fields, "count": "4"}), ("grow", {"name": "orders"})]
    assert digest_of("grow", fields) not in {digest_of(*one) for one in others}
    assert digest_of("a", {"b": "c\ud800"}) != digest_of("a", {"b": "c"})


def test_what_has_changed_is_named_with_its_values() -> None:
    before = packed({"the state of billing": "Empty", "the offset of orders-0": 5, "topic id": "x"})
    assert not differences(before, {"topic id": "x", "the offset of orders-0": 5, "the state of billing": "Empty"})
    assert differences(before, {"the state of billing": "Stable", "the offset of orders-0": 5, "orders-1": 7}) == [
        "The state of billing: Empty when you looked, Stable now.",
        "Topic id: x when you looked, not there now.",
        "Orders-1: not there when you looked, 7 now.",
    ]


def test_many_and_long_differences_are_cut() -> None:
    said = differences(packed({f"p{number}": "x" * 5_000 for number in range(12)}), {})
    assert len(said) == 6
    assert said[-1] == "7 more have changed."
    assert all(len(one) < 400 for one in said)
