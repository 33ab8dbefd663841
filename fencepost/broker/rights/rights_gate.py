"""The gate of a broker with an authorizer: it judges each request before the handler.

The gate splits a request: the handler gets the part that is allowed, and the refused part is answered beside it. The
declaration of each API names the operations that it needs. Handlers that keep sessions (Fetch, ShareFetch) or find
topics themselves ask for rights with `rights_of`.
Source: Kafka's KafkaApis and AuthHelper.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices, run_to_end
from fencepost.broker.requests.api import CloseConnection, SlicedResponse, UsualAnswer
from fencepost.broker.requests.declared_rights import (
    MESSAGES,
    Items,
    Needed,
    NeededRights,
    Part,
    Refusal,
    Unknown,
    on_cluster,
)
from fencepost.broker.requests.error_messages import explain
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.broker.security.audit import NotingRights
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.requests.api import RequestContext
    from fencepost.broker.requests.routes import Api
    from fencepost.broker.security.audit import Audit
    from fencepost.broker.security.authorizer import Authorizer, Rights


class RestrictedRequest:
    """A request that is refused as a whole or in part; `answer` serves the allowed part."""

    __slots__ = ("_api", "_audit", "_part", "_request", "_rights", "_whole")

    def __init__(
        self, audit: Audit, rights: Rights, api: Api, request: Any, whole: Refusal | None, part: Part | None = None
    ) -> None:
        self._audit = audit
        self._rights = rights
        self._api = api
        self._request = request
        self._whole = whole
        self._part = part

    def answer(self, context: RequestContext) -> Any:
        """Return a handler's result. Raises CloseConnection for a refusal that cannot be answered."""
        whole, part, api = self._whole, self._part, self._api
        if whole is not None:
            self._audit.refused(self._rights, api.name, whole.lacking)
            if api.key == ApiKey.PRODUCE and self._request.acks == 0:
                raise CloseConnection(f"Produce with acks=0 was refused: {whole.lacking.error.name}")
            if whole.response is not None:
                return whole.response
            response = api.failed(self._request, whole.lacking.error, context.api_version)
            explain(response, _reason(self._rights, whole.lacking))
            return response
        assert part is not None, "one of the two is given"
        for lacking in part.lacking:
            self._audit.refused(self._rights, api.name, lacking)
        context.cached = None  # the prepared request, and the form of its reply, are those of the whole request
        if part.allowed is None:
            is_answered = api.key != ApiKey.PRODUCE or self._request.acks != 0
            return self._completed(context, api.response() if is_answered else None)
        started = api.handler(context, part.allowed)
        return self._complete_later(context, started) if isawaitable(started) else self._completed(context, started)

    async def _complete_later(self, context: RequestContext, started: Awaitable[Any]) -> Any:
        answer = await started
        if type(answer) is not SlicedResponse:
            return self._completed(context, answer)
        await run_in_slices(self._complete(context, answer.response), SLICE_S)
        return answer

    def _completed(self, context: RequestContext, answer: Any) -> Any:
        response = answer.build() if type(answer) is UsualAnswer else answer
        run_to_end(self._complete(context, response))
        return response

    def _complete(self, context: RequestContext, response: Any) -> SlicedWork[None]:
        part = self._part
        assert part is not None, "a request that is refused as a whole is not completed"
        if response is None:
            if part.refused:
                raise CloseConnection("Produce with acks=0 was refused for some of its partitions")
            return
        if part.finish is not None:
            yield from part.finish(self._rights, context, self._request, response)
        if part.refused and not getattr(response, "error_code", 0):
            answers = getattr(response, part.answered)
            if part.places:
                for place, refused in sorted(zip(part.places, part.refused, strict=True), key=itemgetter(0)):
                    answers.insert(place, refused)
            elif part.are_first:
                setattr(response, part.answered, [*part.refused, *answers])
            else:
                answers += part.refused


class RightsGate:
    """The gate: it judges requests by the rights that APIs declare, the authorizer and the client's principal."""

    def __init__(self, authorizer: Authorizer, audit: Audit) -> None:
        self.authorizer = authorizer
        self.audit = audit

    def rights_of(self, context: RequestContext) -> Rights:
        """The rights that the request's client has now."""
        connection = context.connection
        return self.authorizer.rights(connection.principal, connection.client_host)

    def may(
        self, context: RequestContext, api_name: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """Whether the request's client may do the operation now; a denial is audited."""
        rights = self.rights_of(context)
        if rights.may(operation, resource, name):
            return True
        self.audit.refused(rights, api_name, (operation, resource, name))
        return False

    def keep(self, context: RequestContext) -> None:
        """Remember, for requests that repeat this one, that the client may do every operation that it needs."""
        if context.cached is not None:
            context.cached.allowed_epoch = self.authorizer.epoch

    def is_kept(self, context: RequestContext) -> bool:
        """Whether `keep` was called for such an earlier request, and no rule has changed since."""
        cached = context.cached
        return cached is not None and cached.allowed_epoch == self.authorizer.epoch

    def restriction(self, api: Api, context: RequestContext, request: Any) -> RestrictedRequest | None:
        """Return None for a request that is served as it is."""
        cached = context.cached
        if cached is not None and cached.allowed_epoch == self.authorizer.epoch:  # as `is_kept`, whose call is saved
            return None
        needed = api.rights
        if needed is None:
            return None
        rights, is_kept = self.rights_of(context), True
        if self.audit.notes_permissions():
            rights = self._noting(rights, api)
        if not rights.is_super:
            if needed.whole is not None:
                refusal = needed.whole(rights, context, request)
                is_kept = refusal is None
                if isinstance(refusal, Refusal):
                    return RestrictedRequest(self.audit, rights, api, request, refusal)
            part = self._part(needed, rights, api, context, request)
            if part is not None:
                return RestrictedRequest(self.audit, rights, api, request, None, part)
        if cached is not None and is_kept:
            cached.allowed_epoch = self.authorizer.epoch
        return None

    def _noting(self, rights: Rights, api: Api) -> Rights:
        """The same rights, for level debug of the audit log."""
        if rights.is_super:
            self.audit.allowed_all(rights, api.name)
            return rights
        return NotingRights(self.authorizer, rights.principal, rights.host, api.name)

    def _part(
        self, needed: NeededRights, rights: Rights, api: Api, context: RequestContext, request: Any
    ) -> Part | None:
        """The part of the request that is allowed; None if that is all of it, and the response needs no change."""
        part = Part(request)
        if needed.split is not None:
            part = needed.split(rights, context, request)
        for items in needed.items:
            if items.versions[0] <= context.api_version <= items.versions[1]:
                part = split(items, rights, api, context, request)
        finish = part.finish or needed.finish
        if part.allowed is request and finish is None and (part.is_kept or context.cached is None):
            return None
        return part._replace(finish=finish)


def split(items: Items, rights: Rights, api: Api, context: RequestContext, request: Any) -> Part:
    """Split a request into its allowed items and the answers to the refused ones."""
    if items.instead is not None and rights.may(*on_cluster(items.instead)):
        return Part(request)
    requested = getattr(request, items.requested)
    repeated = _repeated(requested, items.key_of)
    allowed, is_kept = [], True
    lacking: dict[Needed, None] = {}
    refused: dict[ErrorCode, list[Any]] = {}
    places: dict[ErrorCode, list[int]] = {}
    for place, item in enumerate(requested):
        if repeated and items.key_of is not None and items.key_of(item) in repeated:
            allowed.append(item)
            continue
        needed = items.needed(context, request, item)
        if isinstance(needed, Unknown):
            is_kept = False
            allowed.append(item)
        elif rights.may(*needed):
            allowed.append(item)
        else:
            lacking[needed] = None
            refused.setdefault(needed.error, []).append(item)
            places.setdefault(needed.error, []).append(place)
    if not refused:
        return Part(request, is_kept=is_kept)
    answers: list[Any] = []
    for error, of_error in refused.items():
        if items.refused is not None:
            answers += [items.refused(rights, context, item, error) for item in of_error]
        else:
            failed = api.failed(_with(request, items.requested, of_error), error, context.api_version)
            answers += getattr(failed, items.answered)
        for answer in answers:
            explain(answer, items.message or MESSAGES[error])
    allowed_request = _with(request, items.requested, allowed) if allowed or items.asks_always else None
    part = Part(allowed_request, items.answered, answers, list(lacking), items.are_first)
    return (
        part._replace(places=[place for of_error in places.values() for place in of_error]) if items.in_order else part
    )


def _reason(rights: Rights, lacking: Needed) -> str:
    """The message for a client: Kafka's words. Of the cluster, the operation that is lacking follows."""
    words = MESSAGES[lacking.error]
    if lacking.resource is not AclResource.CLUSTER:
        return words
    return f"{words} {rights.principal.partition(':')[2]} needs {lacking.operation.name} on the cluster"


def _with(request: Any, name: str, items: list[Any]) -> Any:
    """A copy of the request that lists other items."""
    changed = copy.copy(request)
    setattr(changed, name, items)
    return changed


def _repeated(items: Iterable[Any], key_of: Callable[[Any], Any] | None) -> set[Any]:
    """The keys that several of the items have."""
    if key_of is None:
        return set()
    seen: set[Any] = set()
    repeated: set[Any] = set()
    for key in map(key_of, items):
        (repeated if key in seen else seen).add(key)
    return repeated
