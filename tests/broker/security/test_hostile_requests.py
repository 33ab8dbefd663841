"""Requests of values that make no sense, from a client without rights, and from one with rights on some names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.events import events_to
from fencepost.broker.requests.api import APIS
from fencepost.broker.security.acls import AclOperation, AclPattern, AclResource, AclRule
from tests.support.hostile_requests import HostileRequests
from tests.support.secured_broker import SecuredBroker, rule, secured_broker

TIMES = 6
NO_RIGHTS: list[AclRule] = []
SOME_RIGHTS = [
    rule(operation, resource, "", pattern=AclPattern.PREFIXED)._replace(name=letter)
    for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    for resource in (AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID)
    for letter in "svt"
]


async def state_of(broker: SecuredBroker) -> Any:
    """What an administrator sees of the broker, without what requests create by being sent."""
    topics = broker.services.topics
    return (
        [(topic.name, topic.partition_count) for topic in topics.metadata.all()],
        [topics.topic_config(topic.name) for topic in topics.metadata.all()],
        broker.acls.matching(lambda _: True),
        broker.services.client_quotas.all,
        broker.services.scram_credentials.all,
        await broker.services.groups.list_groups(),
        broker.services.transactions.transactions(),
    )


@pytest.mark.parametrize("rules", [NO_RIGHTS, SOME_RIGHTS], ids=["no rights", "some rights"])
async def test_they_are_answered_without_a_failure_and_change_nothing(tmp_path: Path, rules: list[AclRule]) -> None:
    failures: list[Any] = []

    def take(_logger: str, level: str, event: Any) -> None:
        if level in ("error", "critical"):
            failures.append(event)

    async with secured_broker(tmp_path) as broker:
        await broker.create_topics(["victim", "seen"])
        await broker.allow(*rules)
        before = await state_of(broker)
        hostile = HostileRequests(20_131, [broker.topic_id("victim")])
        answered_count = sent_count = 0
        with events_to(take):
            for api in APIS.values():
                for version in range(api.minimum_version, api.maximum_version + 1):
                    for _ in range(TIMES):
                        sent = hostile.request(api.request, version)
                        sending = asyncio.ensure_future(broker.alice.send(sent.content))
                        await asyncio.wait({sending}, timeout=0.05)  # a join may rightly wait for other members
                        answered_count += sending.done() and isinstance(sending.result(), bytes)
                        sent_count += 1
                        sending.cancel()
        assert failures == []
        assert answered_count > sent_count * 3 // 4, "the others wait, or close the connection"
        if rules is NO_RIGHTS:
            assert await state_of(broker) == before
