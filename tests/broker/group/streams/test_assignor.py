"""Which member runs which task: balanced, kept where it was, and with copies of state on other processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.group.streams.assignor import Assignee, SubtopologySize, assign
from fencepost.broker.group.streams.tasks import NO_TASKS, TaskAssignment

STATELESS, STATEFUL = SubtopologySize(4, is_stateful=False), SubtopologySize(4, is_stateful=True)


def active(**tasks: set[int]) -> TaskAssignment:
    return TaskAssignment({name: frozenset(numbers) for name, numbers in tasks.items()})


def fresh(*names: str) -> dict[str, Assignee]:
    """Members of a process each."""
    return {name: Assignee(f"process-{name}", NO_TASKS) for name in names}


def count(tasks: dict[str, frozenset[int]]) -> int:
    return sum(map(len, tasks.values()))


def test_tasks_are_shared_out_evenly() -> None:
    made = assign(fresh("a", "b"), {"0": STATELESS, "1": STATELESS}, standby_count=0)
    assert [count(dict(made[name].active)) for name in ("a", "b")] == [4, 4]


def test_members_keep_their_tasks() -> None:
    members = fresh("b") | {"a": Assignee("process-a", active(x={0, 1, 2, 3}))}
    made = assign(members, {"x": STATELESS}, standby_count=0)
    assert made["a"].active["x"] < {0, 1, 2, 3}
    assert len(made["b"].active["x"]) == 2


def test_a_member_with_a_copy_of_the_state_takes_over() -> None:
    standby = TaskAssignment(standby={"x": frozenset({0, 1, 2, 3})})
    members = fresh("a", "c") | {"b": Assignee("process-b", standby)}
    made = assign(members, {"x": STATEFUL}, standby_count=0)
    assert len(made["b"].active["x"]) == 2


def test_copies_are_kept_by_the_previous_owner_first() -> None:
    members = {
        "a": Assignee("process-a", active(x={0, 1})),
        "b": Assignee("process-b", active(x={2, 3})),
    }
    made = assign(members, {"x": STATEFUL}, standby_count=1)
    assert made["a"] == TaskAssignment({"x": frozenset({0, 1})}, {"x": frozenset({2, 3})})
    assert (
        assign({"a": Assignee("p", made["a"]), "b": Assignee("q", made["b"])}, {"x": STATEFUL}, standby_count=1) == made
    )


def test_no_copies_are_kept_of_what_has_no_state() -> None:
    made = assign(fresh("a", "b"), {"x": STATELESS}, standby_count=2)
    assert all(not target.standby for target in made.values())


def test_load_is_counted_by_process() -> None:
    members = {
        "a": Assignee("p", NO_TASKS),
        "b": Assignee("p", NO_TASKS),
        "c": Assignee("q", NO_TASKS),
    }
    made = assign(members, {"x": SubtopologySize(6, is_stateful=False)}, standby_count=0)
    assert {name: count(dict(target.active)) for name, target in made.items()} == {"a": 2, "b": 2, "c": 2}


def test_of_equal_processes_the_ones_that_kafka_finds_first_get_more() -> None:
    made = assign(fresh("a", "b", "c"), {"x": STATELESS}, standby_count=0)
    assert {name: set(target.active["x"]) for name, target in made.items()} == {"a": {0}, "b": {1, 3}, "c": {2}}


def test_of_equal_members_of_a_process_the_ones_that_kafka_finds_first_get_more() -> None:
    members = {name: Assignee("p", NO_TASKS) for name in "abcd"}
    made = assign(members, {"x": SubtopologySize(2, is_stateful=False)}, standby_count=0)
    assert {name: set(target.active.get("x", ())) for name, target in made.items()} == {
        "a": {0},
        "b": set(),
        "c": set(),
        "d": {1},
    }


def test_a_copy_stays_where_it_was_also_if_another_one_is_beside_the_active_task_now() -> None:
    copy = TaskAssignment(standby={"x": frozenset({0})})
    members = {
        "a": Assignee("p", active(x={0})),
        "b": Assignee("p", copy),
        "c": Assignee("r", copy),
        "d": Assignee("q", NO_TASKS),
    }
    made = assign(members, {"x": SubtopologySize(1, is_stateful=True)}, standby_count=1)
    assert made["c"] == copy
    assert made["d"] == NO_TASKS


def test_a_group_without_members_has_no_assignments() -> None:
    assert assign({}, {"x": STATELESS}, standby_count=1) == {}


MEMBERS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("pqrs"), min_size=1)
SIZES = st.dictionaries(
    st.sampled_from("xyz"), st.builds(SubtopologySize, st.integers(1, 7), st.booleans()), min_size=1
)


@given(rounds=st.lists(st.tuples(MEMBERS, SIZES, st.integers(0, 3)), min_size=1, max_size=4))
def test_every_assignment_is_whole_balanced_and_has_a_task_once_on_a_process(
    rounds: list[tuple[dict[str, str], dict[str, SubtopologySize], int]],
) -> None:
    previous: dict[str, TaskAssignment] = {}
    for processes, sizes, standby_count in rounds:
        members = {name: Assignee(process, previous.get(name, NO_TASKS)) for name, process in processes.items()}
        made = assign(members, sizes, standby_count=standby_count)
        assert made.keys() == members.keys()
        on_process = [
            (members[name].process_id, subtopology, number)
            for name, target in made.items()
            for tasks in (target.active, target.standby)
            for subtopology, numbers in tasks.items()
            for number in numbers
        ]
        assert len(on_process) == len(set(on_process))
        given_out = [
            (subtopology, number)
            for target in made.values()
            for subtopology, numbers in target.active.items()
            for number in numbers
        ]
        assert sorted(given_out) == sorted((name, at) for name, size in sizes.items() for at in range(size.task_count))
        wanted = sum(
            size.task_count * min(standby_count, len(set(processes.values())) - 1)
            for size in sizes.values()
            if size.is_stateful
        )
        assert sum(count(dict(target.standby)) for target in made.values()) == wanted
        most = -(-len(given_out) // len(members))
        # By process members may have one more each, as in Kafka: processes are filled up by their load.
        assert max(count(dict(target.active)) for target in made.values()) <= most + 1
        again = {name: Assignee(members[name].process_id, made[name]) for name in members}
        kept = assign(again, sizes, standby_count=standby_count)
        assert sum(count(dict(target.active)) for target in kept.values()) == len(given_out)
        previous = made
