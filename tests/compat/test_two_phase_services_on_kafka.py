"""The services of docs/examples in Python, Java and Go against an Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.soak.free_port import free_port
from fencepost.testing.remote import RemoteBroker
from scripts.apache_kafka import ApacheKafka
from tests.compat.two_phase_shop import kill_at_random, shop_on
from tests.support.missing_tools import require_apache_kafka
from tests.support.postgres import postgres_server
from tests.support.postgres_over_tcp import postgres_over_tcp
from tests.two_phase.brokers import KAFKA_JAVA, KAFKA_SETTINGS

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.mark.parametrize("seed", [5])
def test_services_that_are_killed_at_random_lose_and_double_nothing_on_apache_kafka(tmp_path: Path, seed: int) -> None:
    require_apache_kafka()
    kafka = ApacheKafka(tmp_path / "kafka", free_port(), properties=KAFKA_SETTINGS, java_options=KAFKA_JAVA)
    with kafka, postgres_server() as server, postgres_over_tcp(server.uri) as port:
        broker = RemoteBroker(kafka.bootstrap_servers)
        with shop_on(broker, (server, port)) as shop:
            kill_at_random(shop, ["two-phase-java", "two-phase-go", "python"], kills=24, seed=seed)
        broker.close()
