"""What a scrape shows of rights and quotas."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from fencepost.broker.metrics import security_families
from fencepost.broker.quotas.entities import QuotaKey, entity_of
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.metrics.test_broker_families import values_of
from tests.broker.test_node import connected
from tests.support.certificates import Authority
from tests.support.http_node import HttpNode, http_node

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


async def values(http: HttpNode) -> dict[str, float]:
    return values_of((await http.get("/metrics")).text)


async def test_refusals_and_acls_are_counted(tmp_path: Path) -> None:
    async with http_node(tmp_path, authorizer_class_name=AUTHORIZER) as http:
        found = await values(http)
        assert (found['fencepost_authorizations_total{result="denied"}'], found["fencepost_acl_count"]) == (0, 0)
        async with connected(http.node) as client:
            for _ in range(3):
                request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
                response = await client.call(request, MetadataResponse, 4)
                assert response.topics[0].error_code == 29
        assert (await values(http))['fencepost_authorizations_total{result="denied"}'] == 3


async def test_the_use_of_quotas_is_shown_by_client(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        quotas = http.node.services.client_quotas
        await quotas.change(entity_of([("client-id", None)]), {QuotaKey.PRODUCER_BYTE_RATE: 1_000.0})
        quotas.charge(QuotaKey.PRODUCER_BYTE_RATE, ("User:ANONYMOUS", "fast"), 100_000)
        quotas.charge(QuotaKey.PRODUCER_BYTE_RATE, ("User:ANONYMOUS", "slow\n"), 100)
        found = await values(http)
        fast, slow = (f'{{client_id="{name}",user=""}}' for name in ("fast", "slow\n"))
        assert found[f"kafka_server_produce_byte_rate{fast}"] > 1_000 > found[f"kafka_server_produce_byte_rate{slow}"]
        assert found[f"kafka_server_produce_throttle_time{fast}"] > 0
        assert found[f"kafka_server_produce_throttle_time{slow}"] == 0
        assert not [name for name in found if name.startswith("kafka_server_fetch_byte_rate")]


async def test_of_many_clients_those_are_shown_that_use_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_families, "MOST_CLIENTS", 3)
    async with http_node(tmp_path) as http:
        quotas = http.node.services.client_quotas
        await quotas.change(entity_of([("client-id", None)]), {QuotaKey.PRODUCER_BYTE_RATE: 1_000.0})
        for number in range(5):
            quotas.charge(QuotaKey.PRODUCER_BYTE_RATE, ("User:ANONYMOUS", f"client {number}"), number + 1)
        text = (await http.get("/metrics")).text
        assert "# left out: the use of producer_byte_rate of all but 3 clients" in text
        found = values_of(text)
        shown = [name for name in found if name.startswith("kafka_server_produce_byte_rate")]
        assert [name.split('client_id="client ')[1][0] for name in shown] == ["2", "3", "4"]
        assert found['fencepost_metrics_left_out{kind="quota_clients"}'] == 2


async def test_the_end_of_a_certificate_is_shown_by_listener(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    files = authority.server()
    encrypted = {
        "listeners": ("SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"),
        "ssl_keystore_location": str(files.both),
    }
    name = "fencepost_tls_certificate_expiry_timestamp_seconds"
    async with http_node(tmp_path, **encrypted) as http:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        found = {one: value for one, value in (await values(http)).items() if one.startswith(name)}
        assert found == {f'{name}{{listener="SSL"}}': certificate.not_valid_after_utc.timestamp()}
    async with http_node(tmp_path / "without") as http:
        assert name not in (await http.get("/metrics")).text
