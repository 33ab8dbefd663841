"""Reasons of refusals, for people, beside the error codes of replies that have room for them."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.declaration import SCHEMA_ATTRIBUTE, struct_schema_of


def explain(answer: Any, message: str) -> None:
    """Put a message beside every error code that has room for one, at any depth."""
    schema = struct_schema_of(type(answer))
    for field in schema.fields:
        content = getattr(answer, field.name)
        if field.name == "error_message":
            if not content and answer.error_code:
                answer.error_message = message
        elif isinstance(content, list):
            for element in content:
                if hasattr(type(element), SCHEMA_ATTRIBUTE):
                    explain(element, message)
