"""Rules for what is hidden of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.schemas.masking import HIDDEN, Rules, RulesError, TopicRules, parse_rules, read_rules


def rules(text: str, topic: str = "orders") -> TopicRules:
    return Rules(parse_rules(text, "masking"), b"key").of(topic)


@pytest.mark.parametrize(
    ("rule", "value", "masked"),
    [
        ("value.card.number last-four", {"card": {"number": "4111111111111234"}}, {"card": {"number": "…1234"}}),
        ("value.card.number last-four", {"card": {"number": "1234"}}, {"card": {"number": HIDDEN}}),
        ("value.pin hide", {"pin": 1234, "id": 1}, {"pin": HIDDEN, "id": 1}),
        ("value.items[].note hide", {"items": [{"note": "a"}, {"n": 1}]}, {"items": [{"note": HIDDEN}, {"n": 1}]}),
        ("value.items.note hide", {"items": [[{"note": "a"}]]}, {"items": [[{"note": HIDDEN}]]}),
        ("value.extras.* hide", {"extras": {"a": 1, "b": [2]}}, {"extras": {"a": HIDDEN, "b": HIDDEN}}),
        ('value."a.b".c hide', {"a.b": {"c": 1}, "a": {"b": {"c": 2}}}, {"a.b": {"c": HIDDEN}, "a": {"b": {"c": 2}}}),
        ("value.card hide", {"card": {"number": "1"}}, {"card": HIDDEN}),
        ("value hide", {"card": 1}, HIDDEN),
        ("value.cardNumber hide", {"card_number": 1, "CARDNUMBER": 2}, {"card_number": HIDDEN, "CARDNUMBER": HIDDEN}),
        ("value.pin hide", {"pin": None}, {"pin": None}),
        ("value[].pin hide", [{"pin": 1}], [{"pin": HIDDEN}]),
    ],
)
def test_a_rule_hides_its_field_and_nothing_else(rule: str, value: Any, masked: Any) -> None:
    assert rules(f"orders {rule}").read("value", value) == masked


@pytest.mark.parametrize("value", ["4111", 7, True, ["4111"], {"card": "4111"}, {"card": ["4111", {"number": 1}]}])
def test_something_else_in_place_of_the_field_is_hidden(value: Any) -> None:
    assert "4111" not in json.dumps(rules("orders value.card.number hide").read("value", value))


def test_equal_values_have_equal_hashes_that_need_the_key() -> None:
    one = rules("orders value.id hash")
    first, again, other = (one.read("value", {"id": text})["id"] for text in ("ann", "ann", "bob"))
    assert first == again != other
    assert first.startswith("#")
    assert Rules(parse_rules("orders value.id hash", "m")).of("orders").read("value", {"id": "ann"})["id"] != first


def test_rules_are_for_topics_keys_and_headers() -> None:
    text = "orders* key hide\n# a comment\n\n* header.Authorization hide\npay?ents value hide"
    orders = rules(text, "orders-eu")
    assert (orders.concern("key"), orders.concern("value"), orders.of_whole("key")) == (True, False, "hide")
    assert (orders.header("authorization", "secret"), orders.header("trace", "t")) == (HIDDEN, None)
    assert rules(text, "payments").of_whole("value") == "hide"
    assert not rules(text, "other").concern("key")
    assert not rules("orders value hide", "my-orders").concern("value")


@pytest.mark.parametrize("name", ["a.b", '"a.b"', "A_B", "*"])
def test_a_header_may_have_dots_in_its_name(name: str) -> None:
    header = "a.b" if "." in name else "ab"
    assert rules(f"orders header.{name} hide").header(header, "secret") == HIDDEN


def test_of_two_kinds_for_a_whole_value_it_is_hidden() -> None:
    assert rules("orders value hash\norders value last-four").of_whole("value") == "hide"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("orders value.card", r"masking:1: a rule has three words"),
        ("\n\norders value.card blur", r"masking:3: blur is no kind of masking; kinds are hide, hash, last-four"),
        ("orders body hide", r"masking:1: body begins with none of key, value, header"),
        ("orders header hide", r"masking:1: the name of the header is missing"),
        ("orders header. hide", r"masking:1: the name of the header is missing"),
        ("orders header[] hide", r"masking:1: the name of the header is missing"),
        ("orders value..a hide", r"masking:1: value\.\.a cannot be read from '\.\.a' on"),
        ("orders value.a[0] hide", r"masking:1: .* cannot be read from '\[0\]' on"),
        ("orders valuecard hide", r"masking:1: valuecard begins with none"),
        ("# nothing", "masking: it has no rule"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(RulesError, match=reason):
        parse_rules(text, "masking")


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "masking"
    for content, reason in ((b"\xff", "not UTF-8"), (b"#" * (2 << 20), "at most")):
        path.write_bytes(content)
        with pytest.raises(RulesError, match=reason):
            read_rules(str(path))


NAMES = st.sampled_from(["card", "number", "items", "x"])
VALUES = st.recursive(
    st.just("SECRET") | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.sampled_from(["hide", "hash", "last-four"]))
def test_a_field_is_hidden_wherever_arrays_put_it(value: Any, kind: str) -> None:
    masked = rules(f"orders value.card.number {kind}").read("value", {"card": value})

    def visible(found: Any) -> Any:
        if isinstance(found, list):
            return [visible(one) for one in found]
        return {name: one for name, one in found.items() if name != "number"} if isinstance(found, dict) else found

    without = json.dumps(visible(masked["card"]))
    assert "SECRET" not in json.dumps(masked) or "SECRET" in without
