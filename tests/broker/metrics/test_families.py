"""Boards, alerts and recording rules in docs/monitoring ask for metrics and labels that a scrape really has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.metrics.check_back_families import CHECK_BACK_FAMILIES
from fencepost.broker.metrics.engine_families import ENGINE_FAMILIES
from fencepost.broker.metrics.families import FAMILIES
from fencepost.broker.metrics.security_families import QUOTA_FAMILIES
from fencepost.broker.metrics.share_families import SHARE_FAMILIES
from fencepost.broker.metrics.two_phase_families import TWO_PHASE_FAMILIES
from tests.broker.metrics.test_broker_families import TIMEOUT_S, Metered, send
from tests.support.admin_client import create

MONITORING = Path(__file__).resolve().parents[3] / "docs" / "monitoring"
OF_PROMETHEUS = {"up": {"job", "instance"}}
ADDED_BY_PROMETHEUS = {"job", "instance"}
ONLY_WHERE_USED = {
    family.name: set(family.labels)
    for family in FAMILIES
    if family in QUOTA_FAMILIES + CHECK_BACK_FAMILIES + TWO_PHASE_FAMILIES + ENGINE_FAMILIES + SHARE_FAMILIES
    or family.name in ("fencepost_tls_certificate_expiry_timestamp_seconds", "fencepost_client_metric")
}
"""Families without a sample on a broker alone without TLS, quotas, subscriptions, two-phase ids or resolvers."""
WORDS = {
    *("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "offset", "bool"),
    *("sum", "max", "min", "count", "avg"),
}
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
SELECTOR = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?\{(?P<labels>[^}]*)\}")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
IDENTIFIER = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()\b")

KNOWN_ELSEWHERE = {
    # Names that boards for Kafka ask for: kafka_exporter's, and those of the JMX exporter's rules.
    "kafka_brokers",
    "kafka_topic_partitions",
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_members",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_network_requestmetrics_requests_total",
    "kafka_log_log_size",
    "kafka_log_log_logendoffset",
}


@cache
def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / name).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def of_board() -> Iterator[tuple[str, str]]:
    board = json.loads((MONITORING / "fencepost.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@cache
def expressions() -> dict[str, str]:
    """Every expression, by where it stands."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in rules("alerts.yml")}
    found |= {f"record {rule['record']}": rule["expr"] for rule in rules("recording-rules.yml")}
    found |= {f"panel {number} {title}": text for number, (title, text) in enumerate(of_board())}
    return found


def names_of(expression: str) -> dict[str, set[str]]:
    """The metrics of an expression, each with the labels that it is selected by."""
    text = expression.replace("$__rate_interval", "1m")
    found: dict[str, set[str]] = {}
    for selector in SELECTOR.finditer(text):
        labels = {part.split("=")[0].rstrip("!~ ") for part in STRING.sub("", selector["labels"]).split(",") if part}
        found.setdefault(selector["name"], set()).update(label.strip() for label in labels)
    text = GROUPING.sub(" ", SELECTOR.sub(lambda match: match["name"], text))
    text = re.sub(r"\[[^\]]*\]", " ", STRING.sub(" ", text))
    for name in IDENTIFIER.findall(text):
        if name not in WORDS:
            found.setdefault(name, set())
    return found


def groupings_of(expression: str) -> set[str]:
    return {label.strip() for found in GROUPING.findall(expression) for label in found.split(",") if label.strip()}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """The names of a live scrape, with the labels of each; of a broker with a bit of everything."""
    metered = Metered(tmp_path_factory.mktemp("metered") / "data")
    metered.start()
    try:
        create(metered.admin, "orders")
        send(metered.producer(), "orders", 3)
        metered.commit("billing", "orders", 1)
        stuck = metered.transactional("stuck")
        stuck.begin_transaction()
        send(stuck, "orders", 1)
        text = metered.scrape()
        stuck.abort_transaction(TIMEOUT_S)
    finally:
        metered.broker.close()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("where", expressions())
def test_an_expression_asks_for_what_a_scrape_has(where: str, scraped: Mapping[str, set[str]]) -> None:
    recorded = {rule["record"] for rule in rules("recording-rules.yml")}
    expression = expressions()[where]
    names = names_of(expression)
    assert names, expression
    of_all: set[str] = set()
    for name, labels in names.items():
        known = scraped.get(name, OF_PROMETHEUS.get(name, ONLY_WHERE_USED.get(name)))
        assert known is not None or name in recorded, f"{name} is in no scrape: {expression}"
        known = (known or set()) | ADDED_BY_PROMETHEUS
        assert labels <= known, f"{name} has no label {labels - known}: {expression}"
        of_all |= known
    assert groupings_of(expression) <= of_all, expression


def test_a_live_scrape_has_a_sample_of_every_family_that_needs_no_quota_subscription_or_the_like(
    scraped: Mapping[str, set[str]],
) -> None:
    suffixes = ("", "_count", "_bucket")
    missing = {family.name for family in FAMILIES if not any(family.name + suffix in scraped for suffix in suffixes)}
    assert missing == ONLY_WHERE_USED.keys()
    for family in FAMILIES:
        shown = set().union(*(scraped.get(family.name + suffix, set()) for suffix in suffixes))
        assert shown <= set(family.labels) | {"quantile", "le"}, family.name


def test_names_that_other_boards_ask_for_are_there(scraped: Mapping[str, set[str]]) -> None:
    assert scraped.keys() >= KNOWN_ELSEWHERE


def test_names_and_labels_are_found_in_expressions() -> None:
    text = 'sum by (topic) (rate(a_total{x="b",topic!=""}[5m])) / on (topic) max(d) and e{quantile="0.5"} or vector(0)'
    assert names_of(text) == {"a_total": {"x", "topic"}, "d": set(), "e": {"quantile"}}
    assert groupings_of(text) == {"topic"}


def test_every_alert_says_what_it_means_and_where_to_look() -> None:
    for rule in rules("alerts.yml"):
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith((".", "lag."))


def test_the_board_is_one_that_grafana_imports() -> None:
    board = json.loads((MONITORING / "fencepost.json").read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "instance"}
    for panel in board["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
