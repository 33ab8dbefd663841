"""API keys have Kafka's numbers."""

from __future__ import annotations

from kafka.protocol.api_key import ApiKey as KafkaPythonKey

from fencepost.protocol.api_keys import ApiKey


def test_numbers_of_keys_are_those_that_another_implementation_has() -> None:
    theirs = {key.name: key.value for key in KafkaPythonKey}
    ours = {key.name.replace("_", ""): key.value for key in ApiKey}
    common = {name.replace("_", "").upper(): value for name, value in theirs.items()}
    assert len(ours.keys() & common.keys()) > 40
    assert {name: ours[name] for name in ours.keys() & common.keys()} == {
        name: common[name] for name in ours.keys() & common.keys()
    }


def test_keys_of_zookeepers_time_are_unused() -> None:
    assert not {4, 5, 6, 7} & set(ApiKey)
