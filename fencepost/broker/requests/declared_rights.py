"""The rights that an API needs, as its handler declares them: data for the gate in `broker.rights.rights_gate`.

A name is judged before it is looked up, so that a client cannot tell a topic that it may not see from one that does not
exist; a topic id is looked up first, as in Kafka. `broker.rights.needed_rights` makes the usual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights

Context = Any
"""A `RequestContext`, whose module imports this one."""

ERRORS: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
MESSAGES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


class Needed(NamedTuple):
    """One right: to do an operation on a resource."""

    operation: AclOperation
    resource: AclResource
    name: str

    @property
    def error(self) -> ErrorCode:
        """The error for its lack."""
        return ERRORS[self.resource]


def on_cluster(operation: AclOperation) -> Needed:
    return Needed(operation, AclResource.CLUSTER, CLUSTER_NAME)


class Refusal(NamedTuple):
    """The right that a client lacks for a whole request. response: Kafka's, if that of `failed` differs from it."""

    lacking: Needed
    response: Any = None


class Unknown:
    """In place of a right or a refusal: nothing is lacking now, but the verdict is not kept. For an item that the
    handler refuses, such as a topic id that no topic has yet."""


UNKNOWN: Final = Unknown()

Finish = Callable[["Rights", Context, Any, Any], SlicedWork[None]]
"""Removes from a response the parts that the client may not see, in steps: (rights, context, request, response)."""


class Items(NamedTuple):
    """Items of a request that are allowed or refused one by one.

    requested, answered: the fields of the request and of the response that list them.
    needed:     the right that an item needs: (context, request, item).
    instead:    a right on the cluster that allows all of them.
    refused:    makes the answer to a refused item: (rights, context, item, error); else `failed` of the API does.
    message:    error message in place of Kafka's usual one.
    are_first:  whether the refused items come first in the response; else they come last.
    in_order:   whether the response has the items in the order of the request.
    asks_always: whether the handler is asked even if no item is allowed, as it may refuse the request as a whole.
    key_of:     key of an item, for an API that refuses, with INVALID_REQUEST, several items with one key: these are
                left to its handler.
    versions:   the first and the last that have these items.
    """

    requested: str
    answered: str
    needed: Callable[[Context, Any, Any], Needed | Unknown]
    instead: AclOperation | None = None
    refused: Callable[[Rights, Context, Any, ErrorCode], Any] | None = None
    message: str | None = None
    are_first: bool = False
    in_order: bool = False
    asks_always: bool = False
    key_of: Callable[[Any], Any] | None = None
    versions: tuple[int, int] = (0, 99)


class NeededRights(NamedTuple):
    """The rights that one API needs.

    whole:  the refusal of the request as a whole, None if there is none, UNKNOWN if that may be another one for a
            request that repeats this one: (rights, context, request).
    items:  parts of the request that are refused one by one.
    split:  function in place of `items`, if a request is not just split.
    finish: removes the parts of a response that a client may not see.
    """

    whole: Callable[[Rights, Context, Any], Refusal | Unknown | None] | None = None
    items: tuple[Items, ...] = ()
    split: Callable[[Rights, Context, Any], Part] | None = None
    finish: Finish | None = None


class Part(NamedTuple):
    """The part of a request that is allowed, and the answers to the other items.

    allowed:  the request of the allowed items; None if the handler is not needed.
    answered: the response's field for `refused`. lacking: the rights that the client lacks, for the audit log.
    is_kept:  whether the verdict holds for requests that repeat this one, until a rule changes.
    places:   positions of the refused items among all items, if the response has them in order.
    """

    allowed: Any
    answered: str = ""
    refused: Sequence[Any] = ()
    lacking: Sequence[Needed] = ()
    are_first: bool = False
    is_kept: bool = True
    finish: Finish | None = None
    places: Sequence[int] = ()
