"""Reasons of refusals beside their error codes."""

from __future__ import annotations

from fencepost.broker.requests.error_messages import explain
from fencepost.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse


def test_a_reason_goes_to_each_error_that_has_none_and_to_nothing_else() -> None:
    topics = [
        CreatableTopicResult(name="a", error_code=36, error_message=None),
        CreatableTopicResult(name="b", error_code=0, error_message=None),
        CreatableTopicResult(name="c", error_code=17, error_message="its own"),
    ]
    explain(CreateTopicsResponse(topics=topics), "refused")
    assert [topic.error_message for topic in topics] == ["refused", None, "its own"]
