"""Which objects without a row can never get one: a property over all orders of starts, take-overs and uploads."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.cluster.objects.names import flush_name
from fencepost.broker.cluster.objects.object_ids import ObjectIds, Uploader
from fencepost.broker.cluster.remote.fenced_objects import Fence, is_given_up

NODES = (1, 2)
STEPS = st.lists(
    st.tuples(st.sampled_from(["start", "start earlier version", "end", "upload"]), st.sampled_from(NODES))
)


@given(STEPS)
def test_an_object_is_given_up_exactly_when_no_running_broker_can_commit_it(steps: list[tuple[str, int]]) -> None:
    fences: dict[int, Fence] = {}
    running: dict[int, tuple[int, bool]] = {}  # by node: its fence, and whether it names its objects
    uploads: list[tuple[str, int, int]] = []
    ids = ObjectIds()
    for step, node_id in steps:
        before = fences.get(node_id, Fence(node_id, 0, None, False))
        if step.startswith("start"):
            is_named = step == "start"
            fence = before.fence + 1
            fences[node_id] = Fence(node_id, fence, fence if is_named else before.named_from, True)
            running[node_id] = fence, is_named
        elif step == "end" and node_id in running:
            fences[node_id] = before._replace(fence=before.fence + 1, is_running=False)
            del running[node_id]
        elif step == "upload" and node_id in running:
            fence, is_named = running[node_id]
            object_id = ids.new(Uploader(node_id, fence)) if is_named else uuid4()
            uploads.append((flush_name("a-cluster", object_id), node_id, fence))
            assert not is_given_up(uploads[-1][0], list(fences.values()))
    for name, node_id, fence in uploads:
        can_be_committed = running.get(node_id, (0, True))[0] == fence
        found = is_given_up(name, list(fences.values()))
        assert not (found and can_be_committed)
        if all(is_named for _, is_named in running.values()):
            assert found is not can_be_committed


def test_other_objects_in_the_bucket_are_nobodys_garbage() -> None:
    assert not is_given_up("check/x", [])
    assert not is_given_up("a-cluster/else", [])
