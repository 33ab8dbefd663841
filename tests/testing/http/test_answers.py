"""Contents and messages as JSON."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.testing.errors import MisuseError
from fencepost.testing.http import answers
from fencepost.testing.http.answers import content, page_of_records, plain, text_of
from fencepost.testing.http.kinds import InputError
from fencepost.testing.results import Record


@given(found=st.none() | st.binary())
def test_any_content_comes_back_from_base64(found: bytes | None) -> None:
    assert content(text_of(found, "base64", "it"), "base64", "it") == found


@given(text=st.none() | st.text())
def test_any_text_comes_back_from_utf8(text: str | None) -> None:
    assert text_of(content(text, "utf-8", "it"), "utf-8", "it") == text


def test_what_is_not_in_its_encoding_is_refused() -> None:
    for wrong in ("?", "AAA", "AA==\n", "ä"):
        with pytest.raises(InputError, match=r"values\[0\] is not base64"):
            content(wrong, "base64", "values[0]")
    with pytest.raises(MisuseError, match="the value is not UTF-8: ask with encoding=base64"):
        text_of(b"\xff", "utf-8", "the value")


def test_a_page_ends_at_its_limit_or_with_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Record("orders", 0, offset, 0, None, b"1234567890") for offset in range(10)]
    page = page_of_records(found, 2, 3, "utf-8")
    assert [one["offset"] for one in page["records"]] == [2, 3, 4]
    assert (page["total"], page["next_skip"]) == (10, 5)
    assert page_of_records(found, 7, 3, "utf-8")["next_skip"] is None
    assert page_of_records(found, 10, 3, "utf-8") == {"records": [], "total": 10, "next_skip": None}
    monkeypatch.setattr(answers, "MOST_BYTES_OF_RECORDS", 15)
    assert page_of_records(found, 0, 10, "utf-8")["next_skip"] == 2


def test_a_message_is_shown_by_its_fields_with_bytes_shortened() -> None:
    records = b"x" * 5000
    data = [
        TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=1, records=memoryview(records))])
    ]
    shown = plain(ProduceRequest(acks=-1, timeout_ms=5, topic_data=data))
    assert shown["acks"] == -1
    (topic,) = shown["topic_data"]
    (partition,) = topic["partition_data"]
    assert partition["index"] == 1
    assert partition["records"] == {"base64": base64.b64encode(records[:1024]).decode(), "size": 5000}
    assert plain({"a": (1, 2.5, None)}) == {"a": [1, 2.5, None]}
