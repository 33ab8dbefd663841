"""What Apache Kafka 4.3 answered to some five thousand requests, a broker process of ours answers, too.

Kafka's side is a recording; `python -m tests.differences --record` renews it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from tests.differences.__main__ import comparisons
from tests.differences.comparison import Deviation, answers_of, compare, described, load, until_first
from tests.differences.connection import Connection
from tests.differences.declared import obsolete, undeclared
from tests.differences.fencepost import SETTINGS
from tests.differences.random_sequences import RECORDED_SEEDS
from tests.differences.sequences import SEQUENCES
from tests.support.broker_process import BrokerProcess

SEEDS = [(theme, seed) for theme, seeds in RECORDED_SEEDS.items() for seed in seeds]

_found: dict[str, list[Deviation]] = {}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With the settings that Kafka was asked under, in place of those of the other modules."""
    with BrokerProcess(tmp_path_factory.mktemp("compared") / "data", settings=SETTINGS) as process:
        # Whichever theme comes first: Kafka had its internal topics by then.
        with Connection(process.host, process.port) as connection:
            for key_type in (0, 1):
                connection.send(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4)
                connection.receive(ApiKey.FIND_COORDINATOR, 4)
        yield process
        assert "request_failed" not in process.output, process.output
        assert "Traceback" not in process.output, process.output


def deviations_in(theme: str, broker: BrokerProcess) -> list[Deviation]:
    if theme not in _found:
        _found[theme] = compare(theme, load(theme), answers_of(broker.host, broker.port, SEQUENCES[theme]))
    return _found[theme]


@pytest.mark.parametrize("theme", SEQUENCES)
def test_no_reply_deviates_without_a_reason(theme: str, broker: BrokerProcess) -> None:
    left = undeclared(deviations_in(theme, broker))
    assert not left, f"declare these in tests/differences/declared.py, or mend them:\n{described(left)}"


def deviations_of_seed(theme: str, seed: int, broker: BrokerProcess) -> list[Deviation]:
    (generated,) = comparisons([theme], [seed])
    if generated.name not in _found:
        found = answers_of(broker.host, broker.port, generated.sequence, token=generated.token)
        _found[generated.name] = compare(generated.name, load(generated.name), found)
    return _found[generated.name]


@pytest.mark.parametrize(("theme", "seed"), SEEDS)
def test_no_reply_to_a_seeds_requests_deviates_without_a_reason(theme: str, seed: int, broker: BrokerProcess) -> None:
    left = undeclared(deviations_of_seed(theme, seed, broker))
    assert not left, f"see it: python -m tests.differences {theme} --seeds {seed}:\n{described(until_first(left))}"


def test_every_declared_difference_still_exists(broker: BrokerProcess) -> None:
    deviations = [deviation for theme in SEQUENCES for deviation in deviations_in(theme, broker)]
    deviations += [deviation for theme, seed in SEEDS for deviation in deviations_of_seed(theme, seed, broker)]
    assert not obsolete(deviations), "take these out of tests/differences/declared.py and of the page"
