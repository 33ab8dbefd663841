"""Writes docs/protocol-support.md: every API that clients of Apache Kafka 4.4 may call, with the versions served here.

    .venv/bin/python -m scripts.protocol_support_page

Fencepost's column comes from the registry of handlers, Kafka's from an ApiVersions reply recorded from Apache Kafka
4.4.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from fencepost.broker.handlers import APIS
from fencepost.broker.handlers.api_versions import advertised_versions
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api_versions import ApiVersionsResponse
from fencepost.protocol.schema import decode

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "protocol-support.md"
RECORDED_API_VERSIONS = ROOT / "tests" / "frames" / "api_versions.jsonl"

INTRODUCTION = """\
# Protocol support

A client that works with Apache Kafka 4.4 finds the same APIs here, with the same versions, except where this table
shows a difference. Versions are those that ApiVersions shows to clients. Kafka's column is what Apache Kafka 4.4
showed when its replies were recorded. Where the lowest version is lower than what is accepted (Produce 0), that is
Kafka's own way: old clients switch features off when they do not see it, and requests of those versions are refused.
Generated from the code by `python -m scripts.protocol_support_page`; a test keeps it current.

"""
ERROR_CODES = """
## Error codes

A reply may have these error codes anywhere in it, besides NONE: in some version, in some state. UNKNOWN_SERVER_ERROR
would be a bug.

"""
NOT_SERVED = "-"


def protocol_support_page() -> str:
    """The whole page."""
    ours = {shown.api_key: (shown.min_version, shown.max_version) for shown in advertised_versions()}
    kafka = kafka_versions()
    lines = ["| key | API | Fencepost | Apache Kafka 4.4 | what it does here |", "|---|---|---|---|---|"]
    lines += [
        f"| {key} | {_name(key)} | {_range(ours.get(key))} | {_range(kafka.get(key))} | {_what_it_does(key)} |"
        for key in sorted(ours | kafka)
    ]
    served = sum(1 for key in kafka if key in ours)
    summary = f"{served} of the {len(kafka)} APIs that Apache Kafka 4.4 shows to clients are served.\n\n"
    return INTRODUCTION + summary + "\n".join(lines) + "\n" + ERROR_CODES + "\n".join(_error_codes()) + "\n"


def kafka_versions() -> dict[int, tuple[int, int]]:
    """API key to (lowest, highest) version, as Apache Kafka 4.4 advertised them."""
    version = 5  # of the recorded ones, only this broker knows it
    for line in RECORDED_API_VERSIONS.read_text().splitlines():
        exchange = json.loads(line)
        if exchange["version"] == version:
            reply = decode(ApiVersionsResponse, bytes.fromhex(exchange["response"]), version, position=4)
            if reply.error_code:
                continue
            return {shown.api_key: (shown.min_version, shown.max_version) for shown in reply.api_keys}
    raise LookupError(f"{RECORDED_API_VERSIONS} holds no reply of version {version}")


def _name(key: int) -> str:
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


def _range(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return NOT_SERVED
    lowest, highest = versions
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def _error_codes() -> list[str]:
    """A line for each served API, with the names of its error codes in their order."""
    names = {api.name: [error.name for error in sorted(api.errors) if error] for api in APIS.values()}
    return [f"- **{name}**: {', '.join(errors) or 'none'}." for name, errors in names.items()]


def _what_it_does(key: int) -> str:
    if key not in APIS:
        return "not served"
    documentation = inspect.getdoc(APIS[key].handler) or ""
    return documentation.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(protocol_support_page(), encoding="utf-8")
