"""What Apache Kafka 4.4 answered to some ten thousand requests, a broker process of ours answers, too: one that is open
to everybody, and one with authentication and ACLs.

Kafka's side is a recording; `python -m tests.differences --record` renews it.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from tests.differences.__main__ import Comparison, comparisons, secured_comparisons
from tests.differences.comparison import Deviation, answers_of, compare, described, load, until_first
from tests.differences.connection import Connection
from tests.differences.declared import obsolete, undeclared
from tests.differences.fencepost import SETTINGS
from tests.differences.random_sequences import RECORDED_SEEDS
from tests.differences.secured import SECURED_SEEDS
from tests.differences.secured.sides import PROTOCOL, SECURED_FENCEPOST
from tests.differences.sequences import SEQUENCES
from tests.support.broker_process import BrokerProcess

SECURED_ONES = [
    *secured_comparisons([], ()),
    *(one for theme, seeds in SECURED_SEEDS.items() for one in secured_comparisons([theme], seeds)),
]
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


@pytest.fixture(scope="module")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {**SETTINGS, **SECURED_FENCEPOST}
    directory = tmp_path_factory.mktemp("secured") / "data"
    with BrokerProcess(directory, settings=settings, protocol=PROTOCOL) as process:
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


def deviations_of(compared: Comparison, broker: BrokerProcess) -> list[Deviation]:
    if compared.name not in _found:
        found = answers_of(broker.host, broker.port, compared.sequence, token=compared.token, login=compared.login)
        _found[compared.name] = compare(compared.name, load(compared.name), found)
    return _found[compared.name]


def deviations_of_seed(theme: str, seed: int, broker: BrokerProcess) -> list[Deviation]:
    (generated,) = comparisons([theme], [seed])
    return deviations_of(generated, broker)


@pytest.mark.parametrize(("theme", "seed"), SEEDS)
def test_no_reply_to_a_seeds_requests_deviates_without_a_reason(theme: str, seed: int, broker: BrokerProcess) -> None:
    left = undeclared(deviations_of_seed(theme, seed, broker))
    assert not left, f"see it: python -m tests.differences {theme} --seeds {seed}:\n{described(until_first(left))}"


@pytest.mark.parametrize("compared", SECURED_ONES, ids=attrgetter("name"))
def test_no_reply_of_a_secured_broker_deviates_without_a_reason(
    compared: Comparison, secured_broker: BrokerProcess
) -> None:
    left = undeclared(deviations_of(compared, secured_broker))
    shown = until_first(left) if compared.depends_on_answers else left
    assert not left, f"see it: python -m tests.differences --secured:\n{described(shown)}"


def test_every_declared_difference_still_exists(broker: BrokerProcess, secured_broker: BrokerProcess) -> None:
    deviations = [deviation for theme in SEQUENCES for deviation in deviations_in(theme, broker)]
    deviations += [deviation for theme, seed in SEEDS for deviation in deviations_of_seed(theme, seed, broker)]
    deviations += [deviation for compared in SECURED_ONES for deviation in deviations_of(compared, secured_broker)]
    assert not obsolete(deviations), "take these out of tests/differences/declared.py and of the page"
