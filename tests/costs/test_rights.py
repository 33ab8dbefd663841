"""What rights cost a request that repeats an earlier one: the verdict about that one is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.messages.acls import AclCreation, CreateAclsRequest
from tests.costs.counting import Counts
from tests.costs.replays import REPLAYS, broker_with_a_client
from tests.support.secured_broker import STANDARD_AUTHORIZER

RULES_COUNT = 1_000


def measured(directory: Path, replay: str, **settings: Any) -> Counts:
    async def run() -> Counts:
        async with broker_with_a_client(str(directory), **settings) as client:
            if settings:
                rules = [AclCreation(4, "kafka-cluster", 3, "User:ANONYMOUS", "*", 2, 3)]
                rules += [AclCreation(kind, "*", 3, "User:ANONYMOUS", "*", 2, 3) for kind in (2, 3, 5)]
                rules += [AclCreation(2, f"other-{number}", 4, "User:a", "*", 3, 3) for number in range(RULES_COUNT)]
                created = await client.call(CreateAclsRequest(rules), 3)
                assert {result.error_code for result in created.results} == {0}
            return await REPLAYS[replay](client)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("replay", "most"),
    [
        ("produce", 50),
        ("produce, 16 that arrive together", 50),
        ("offset_commit", 50),
        ("fetch", 150),  # the handler asks, as sessions name partitions that the request does not
    ],
)
def test_a_kept_verdict_costs_a_few_instructions_whatever_rules_there_are(
    tmp_path: Path, replay: str, most: int, reported_at_the_end: list[str]
) -> None:
    free = measured(tmp_path / "free", replay)
    secured = measured(
        tmp_path / "secured",
        replay,
        authorizer_class_name=STANDARD_AUTHORIZER,
        allow_everyone_if_no_acl_found=True,
    )
    more = secured.instructions - free.instructions
    reported_at_the_end.append(f"rights cost {replay} {more} of {free.instructions:,} instructions")
    assert 0 <= more <= most
