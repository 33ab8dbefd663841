"""Internal topics that a client has created before their first use: coordinators work on them."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration


def test_coordinators_use_the_internal_topics_that_a_client_has_created(tmp_path: Path) -> None:
    wanted = {"__consumer_offsets": 3, "__transaction_state": 2}
    with BrokerProcess(tmp_path / "data") as broker:
        bootstrap = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        admin = AdminClient(bootstrap)
        new = [NewTopic(name, count) for name, count in {**wanted, "of-both": 1}.items()]
        for made in admin.create_topics(new).values():
            made.result(60)
        producer = ck.Producer({**bootstrap, "transactional.id": "writer"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("of-both", b"a")
        producer.commit_transaction(60)
        reading = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = ck.Consumer({**bootstrap, **reading})
        consumer.subscribe(["of-both"])
        while (message := consumer.poll(1)) is None or message.error() is not None:
            pass
        assert message.value() == b"a"
        consumer.commit(message, asynchronous=False)
        consumer.close()
        broker.kill()
        broker.start()
        described = admin.list_topics(timeout=60)
        assert {name: len(described.topics[name].partitions) for name in wanted} == wanted
        later = ck.Consumer({**bootstrap, "group.id": "readers"})
        (committed,) = later.committed([ck.TopicPartition("of-both", 0)], timeout=60)
        later.close()
        assert committed.offset == 1
