"""Which objects without a row can never get one, by the fences of all nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.cluster.objects.names import object_of
from fencepost.broker.cluster.objects.object_ids import uploader_of


class Fence(NamedTuple):
    """The fence of a node.

    fence:      rows are committed under it alone.
    named_from: the fence of the node's last incarnation that named its objects after itself; None without one.
    is_running: whether a process may commit under the fence; not after the node has left or was taken over from.
    """

    node_id: int
    fence: int
    named_from: int | None
    is_running: bool


def is_given_up(name: str, fences: Sequence[Fence]) -> bool:
    """Whether nobody can commit a row for an object, which was uploaded before the fences were read.

    Its name tells under which fence that would be. Older names do not, so these wait until each node that runs is one
    that names its objects.
    """
    object_id = object_of(name)
    if object_id is None:
        return False
    uploader = uploader_of(object_id)
    if uploader is None:
        return not any(one.is_running and one.fence != one.named_from for one in fences)
    return not any(one.node_id == uploader.node_id and one.fence <= uploader.fence for one in fences)
