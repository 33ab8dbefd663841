"""The plan of a soak: its clients, topics and rates."""

from __future__ import annotations

from fencepost.soak.plan import OUTPUTS_TOPIC, TRANSFERS_TOPIC, TWO_PHASE_KINDS, Plan, Slot, group_id, inputs_topic


def test_each_kind_has_its_clients_and_each_slot_a_name_of_its_own() -> None:
    slots = Plan(kinds=["java", "confluent"], rate=10, seed=1).slots()
    assert len(slots) == len({slot.name for slot in slots}) == 10
    assert Slot("java", "producer", 2) in slots
    assert Slot("java", "producer", 2).name == "java-producer-2"


def test_the_rate_is_shared_by_those_that_have_transactions() -> None:
    plan = Plan(kinds=["java"], rate=12, seed=1, producers_count=2, transformers_count=1, verifiers_count=3)
    assert plan.rate_of_each == 4


def test_producers_write_to_the_inputs_and_not_to_the_outputs() -> None:
    plan = Plan(kinds=["java"], rate=1, seed=1)
    assert {partition.topic for partition in plan.inputs()} == {inputs_topic("java")}
    assert {partition.topic for partition in plan.partitions()} == {inputs_topic("java"), OUTPUTS_TOPIC}
    assert {"__transaction_state", "__consumer_offsets"} <= {partition.topic for partition in plan.all_partitions()}


def test_kinds_of_clients_have_groups_of_their_own() -> None:
    assert group_id("java") != group_id("confluent")


def test_a_soak_of_services_has_no_other_clients_and_ids_that_time_does_not_end() -> None:
    plan = Plan(kinds=TWO_PHASE_KINDS, rate=30, seed=1, is_two_phase=True)
    assert [slot.name for slot in plan.slots()] == [f"{kind}-service-1" for kind in TWO_PHASE_KINDS]
    assert plan.rate_of_each == 10
    assert {partition.topic for partition in plan.partitions()} == {TRANSFERS_TOPIC}
    assert plan.broker_settings["fencepost.two.phase.transactional.ids"] == "*"
    assert "fencepost.two.phase.transactional.ids" not in Plan(kinds=["java"], rate=1, seed=1).broker_settings
