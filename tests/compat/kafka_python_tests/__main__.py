"""Runs the integration tests of kafka-python itself, as they come in its source distribution; each is a check.

PROGRAM SOURCES BOOTSTRAP RUN [CHECK...], where SOURCES is the unpacked distribution. A check is named MODULE::TEST.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from tests.compat.kafka_python_tests.service import stand_in_for_their_packages

# What asks for another broker than this one: by the start of a check's name, why.
LEFT_OUT = {
    "test_sasl_integration::": "starts Kafka processes of its own, with SASL",
    "test_ssl_integration::": "starts Kafka processes of its own, with TLS",
    "test_admin_integration::test_create_describe_delete_acls": "needs a broker with an authorizer",
    "test_admin_integration::test_describe_configs_broker_resource_returns_configs": (
        "needs a broker with a given advertised.listeners"
    ),
}
# What the tests of an earlier run on this broker have left under names that do not change.
LEFT_BEHIND = {"transactional_test_topic", "idempotent_test_topic"}
TIMEOUT_S = 60


class Reporter:
    """Chooses tests, and tells the harness what became of each.

    wanted: names of checks; all when empty.
    """

    def __init__(self, wanted: set[str]) -> None:
        self._wanted = wanted
        # What pytest and the tests print goes elsewhere.
        self._lines = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._spent_s: dict[str, float] = {}
        self._ended: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = []
        for item in items:
            check = _check_name(item.nodeid)
            reason = next((LEFT_OUT[start] for start in LEFT_OUT if check.startswith(start)), None)
            if self._wanted and check not in self._wanted:
                continue
            if reason is None:
                chosen.append(item)
            else:
                self._report(check, "skipped", reason)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        check = _check_name(report.nodeid)
        self._spent_s[check] = self._spent_s.get(check, 0.0) + report.duration
        if report.skipped:
            self._ended[check] = ("skipped", report.longrepr[2] if isinstance(report.longrepr, tuple) else "")
        elif report.failed:
            self._ended[check] = ("failed", f"{report.when}: {report.longreprtext}")
        if report.when == "teardown":
            self._report(check, *self._ended.get(check, ("passed", "")))

    def _report(self, check: str, outcome: str, detail: str) -> None:
        seconds = round(self._spent_s.get(check, 0.0), 3)
        self._lines.write(json.dumps({"check": check, "outcome": outcome, "seconds": seconds, "detail": detail}) + "\n")


def _check_name(node: str) -> str:
    """MODULE::TEST of one of pytest's names, which begins with the path of the file."""
    return node.rsplit("/", 1)[-1].replace(".py::", "::", 1)


def forget_earlier_runs(bootstrap: str) -> None:
    """Delete what would be read again by the same tests."""
    from kafka import KafkaAdminClient

    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
    left = LEFT_BEHIND & set(admin.list_topics())
    if left:
        admin.delete_topics(sorted(left))
        while LEFT_BEHIND & set(admin.list_topics()):
            pass
    admin.close()


def have_consumers_ask_for_their_topics() -> None:
    """Every consumer that is made with topics asks about them before it is used.

    Release 3.0.12 forgets to when they are subscribed to while its first Metadata request, which names none, is on its
    way; it then asks again only after `metadata_max_age_ms`, and the test that made it finds nothing to read.
    """
    from kafka import KafkaConsumer

    make = KafkaConsumer.__init__

    def make_and_ask(self: Any, *topics: str, **settings: Any) -> None:
        make(self, *topics, **settings)
        for topic in topics:
            self.partitions_for_topic(topic)

    KafkaConsumer.__init__ = make_and_ask


def main() -> int:
    sources, bootstrap, _run, *checks = sys.argv[1:]
    # The client is the one of the distribution, whatever else is installed.
    sys.path.insert(0, sources)
    import kafka

    release = int(kafka.__version__.split(".")[0])
    os.environ |= {
        "KAFKA_URI": f"tcp://{bootstrap.split(',')[0]}",
        # Their fixtures want to know what a broker can do; release 2.3 tells no newer ones apart.
        "KAFKA_VERSION": "4.3.0" if release >= 3 else "4.0.0",
        # They look for this folder and, with a broker that is there already, start nothing from it.
        "KAFKA_ROOT": sources,
    }
    stand_in_for_their_packages(sources)
    if release >= 3:
        have_consumers_ask_for_their_topics()
    reporter = Reporter(set(checks))
    forget_earlier_runs(bootstrap)
    without = ("randomly", "cacheprovider", "asyncio", "hypothesispytest")
    options = [word for plugin in without for word in ("-p", f"no:{plugin}")]
    options += ["-c", os.devnull, f"--rootdir={sources}", f"--timeout={TIMEOUT_S}", "--tb=short", "--show-capture=no"]
    return pytest.main([*options, "-W", "ignore", f"{sources}/test/integration"], plugins=[reporter])


if __name__ == "__main__":
    sys.exit(main())
