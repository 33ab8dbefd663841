"""Registry of served APIs: the declaration of handlers with `@api`, and the context and services that they are given.

`APIS` holds the served APIs; the table in `broker.requests.served`, written from the declarations, has the versions and
the handlers' modules, so that a module is imported at the first request for one of its APIs. A handler
answers at once, or returns a `LongPoll` or a coroutine, whose first step also runs at once (`broker.kernel.eager` lists
the forbidden calls). So everything before the first wait happens in request order. Replies leave in request order per
connection. Slices of the frame (`records` fields) are valid until the handler has answered or clears `needs_frame`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Required, TypedDict, TypeVar, Unpack

from fencepost.broker.kernel.loggers import Loggers
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.log.append.large_batch_checks import LargeBatches
from fencepost.broker.requests.administrative_changes import AuditedChanges, is_refused, note_changes
from fencepost.broker.requests.declared_errors import Errors
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.requests.long_polls import LongPolls
from fencepost.broker.requests.routes import Api, Repeats
from fencepost.broker.requests.served import SERVED
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.config import Endpoint, Settings
    from fencepost.broker.group.service import GroupService
    from fencepost.broker.hosting.broker_configs import BrokerConfigs
    from fencepost.broker.hosting.client_metrics_configs import ClientMetricsConfigs
    from fencepost.broker.hosting.confirmations import Confirmations
    from fencepost.broker.hosting.features import Features
    from fencepost.broker.hosting.group_configs import GroupConfigs
    from fencepost.broker.hosting.leader_choices import LeaderChoices
    from fencepost.broker.hosting.scram_credentials import ScramCredentials
    from fencepost.broker.hosting.topics import Topics
    from fencepost.broker.kernel.clock import Clock
    from fencepost.broker.quotas.client_quotas import ClientQuotas, RequestMeter
    from fencepost.broker.requests.fetch_sessions import FetchSessionCache
    from fencepost.broker.requests.near_reads import NearReads
    from fencepost.broker.requests.request_cache import CachedRequest
    from fencepost.broker.security.acl_store import Acls
    from fencepost.broker.security.acls import AclOperation, AclResource
    from fencepost.broker.security.authorizer import Rights
    from fencepost.broker.security.delegation_token_store import DelegationTokens
    from fencepost.broker.share.dead_letter_copies import DeadLetterCounts
    from fencepost.broker.share.service import ShareService
    from fencepost.broker.telemetry.client_metrics import ClientMetrics
    from fencepost.broker.transaction.service import TransactionService
    from fencepost.broker.transaction.verification import TransactionVerifier
    from fencepost.protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse

HANDLERS: Final = "fencepost.broker.handlers"
"""The package of the handlers: each module declares the APIs of its family."""

Request = TypeVar("Request")
Response = TypeVar("Response")
Prepared = TypeVar("Prepared")


@dataclass(slots=True)
class Services:
    """The services that handlers call; made once by the node. share_service, client_metrics_service: make
    `shares` and `client_metrics` at their first use.
    """

    settings: Settings
    clock: Clock
    topics: Topics
    transactions: TransactionService
    verifier: TransactionVerifier
    groups: GroupService
    share_service: Callable[[], ShareService]
    group_configs: GroupConfigs
    client_metrics_configs: ClientMetricsConfigs
    broker_configs: BrokerConfigs
    client_metrics_service: Callable[[], ClientMetrics]
    client_quotas: ClientQuotas
    features: Features
    scram_credentials: ScramCredentials
    fetch_sessions: FetchSessionCache
    node_id: int
    cluster_id: str
    listener: Endpoint  # that the client has connected to, as advertised
    loggers: Loggers = field(default_factory=Loggers)
    long_polls: LongPolls = field(default_factory=LongPolls)
    dead_letter_counts: Callable[[], Mapping[str, DeadLetterCounts]] = dict  # by group
    waiting_copies: Callable[[], Mapping[str, int]] = dict  # of dead letters: share partitions by group
    large_batches: LargeBatches = field(default_factory=LargeBatches)
    acls: Acls | None = None  # None, as the gate, without an authorizer
    gate: RequestGate | None = None
    delegation_tokens: DelegationTokens | None = None  # None without `delegation.token.secret.key`
    observer: RequestObserver | None = None
    leader_choices: LeaderChoices | None = None  # None if this node is alone
    confirmations: Confirmations | None = None  # the same
    near_reads: NearReads | None = None  # None if this node has no rack, or is alone

    @property
    def shares(self) -> ShareService:
        return self.share_service()

    @property
    def client_metrics(self) -> ClientMetrics:
        return self.client_metrics_service()


class SlicedResponse(NamedTuple):
    """A response that is encoded in slices, while other requests are served; returned by a handler's coroutine.

    response: must not be changed any more.
    """

    response: Any


FEWEST_WRITTEN_IN_SLICES = 500
"""A reply about fewer groups, or partitions, is encoded in one step: it takes a few ms."""


def written_in_slices(response: Response, count: int) -> Response | SlicedResponse:
    """Choose how a response about `count` groups, or partitions, is encoded; for a handler's coroutine."""
    return SlicedResponse(response) if count >= FEWEST_WRITTEN_IN_SLICES else response


async def build_in_slices(steps: SlicedWork[Any]) -> SlicedResponse:
    """Build a response in slices, while other requests are served."""
    return SlicedResponse(await run_in_slices(steps, SLICE_S))


class RequestObserver(Protocol):
    """Sees every request and its answer: for metrics and a request log. Its methods raise nothing.

    then: another observer, which it passes requests and answers on to; for one that stays in place.
    """

    then: RequestObserver | None

    def begun(self, api: Api, context: RequestContext, request: Any) -> None:
        """Note that a request begins. The observer keeps its notes in `context.observation` until the answer.

        Requests that were to be carried out together may begin once more, one by one.
        """
        ...

    def waits(self, context: RequestContext) -> None:
        """Note that the request waits: its handler was not done in its first step."""
        ...

    def answered(self, api: Api, context: RequestContext, requests_count: int, answer: Any) -> None:
        """Note that a reply is about to be encoded, or that a request without a reply is done.

        requests_count: above 1 if requests of one client were carried out together; `context` is of the first.
        answer: the response or `UsualAnswer`; None without a reply; the `ProduceRun` of requests carried out together.
        """
        ...


class Restriction(Protocol):
    """The parts of a request that a client has no right to."""

    def answer(self, context: RequestContext) -> Any:
        """Carry out the permitted parts of the request, if any; return the result as a handler does.

        Raises CloseConnection.
        """
        ...


class RequestGate(Protocol):
    """Judges every request before its handler: for rights.

    Of requests that are carried out together, which differ in their batches only, it judges the first. Its verdict
    follows from the client and the request alone: it may be asked again about the same request.
    """

    def restriction(self, api: Api, context: RequestContext, request: Any) -> Restriction | None:
        """Return None for a request that its handler is to answer as it is."""
        ...

    def may(
        self, context: RequestContext, api_name: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """Whether the client may do the operation now, for a handler that asks itself; a denial is audited."""
        ...

    def keep(self, context: RequestContext) -> None:
        """Remember that the client has all rights for the request, for requests that repeat it."""
        ...

    def is_kept(self, context: RequestContext) -> bool:
        """Whether that was kept of an earlier request, and no rule has changed since."""
        ...

    def rights_of(self, context: RequestContext) -> Rights:
        """The rights that the request's client has now."""
        ...


def records_limit_bytes(services: Services, meter: RequestMeter | None, maximum_bytes: int) -> int:
    """Return the bound on the records of one response: the least of the client's, the broker's and the quota's."""
    limit_bytes = min(maximum_bytes, services.settings.fetch_max_bytes)
    quota_bytes = None if meter is None else meter.fetch_limit_bytes
    if quota_bytes is not None:
        limit_bytes = min(limit_bytes, int(quota_bytes))
    return max(0, limit_bytes)


class ClientAuthentication(Protocol):
    """The authentication of a client on a SASL listener, which has succeeded before."""

    @property
    def by_token(self) -> bool:
        """Whether the client authenticated by a delegation token."""
        ...

    def handshake_again(
        self, request: SaslHandshakeRequest, version: int
    ) -> SaslHandshakeResponse | Coroutine[Any, Any, SaslHandshakeResponse | None]:
        """Let the client authenticate again, or refuse; return the result as a handler does. Raises CloseConnection."""
        ...


UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
"""Of a client that names none. Source: Kafka's ClientInformation."""


class ClientConnection(Protocol):
    """The connection of a request: its client's address and principal, and state that ends with it.

    client_software: name and version of the client's library, as ApiVersions names them; kept only if clients are asked
                     for metrics, or sent to brokers in their racks.
    """

    client_software: tuple[str, str]

    @property
    def principal(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def client_port(self) -> int: ...
    @property
    def connection_id(self) -> int: ...
    @property
    def authentication(self) -> ClientAuthentication | None: ...
    def add_close_callback(self, callback: Callable[[], None]) -> None: ...
    def __hash__(self) -> int: ...


class NoConnection:
    """Stands in for a connection; it never closes."""

    principal = ANONYMOUS
    client_host = ""
    client_port = 0
    client_software = UNKNOWN_SOFTWARE
    connection_id = 0
    authentication = None

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Drop the callback: it is never called."""


class RequestContext:
    """One request as its handler sees it: header fields and the services.

    needs_frame: whether `records` fields are used until the handler has answered; a handler that is done with them
                 sooner clears it, and their memory is reused.
    blocks_connection: whether no other request of the connection may start until this one is answered.
    meter:  while a quota applies to the client.
    cached: the earlier request that this one repeats.
    is_observed: whether the request is charged, and the observer has seen its answer.
    observation: notes of the observer on the request, if there is an observer.
    """

    __slots__ = (
        "api_version",
        "blocks_connection",
        "cached",
        "client_id",
        "connection",
        "correlation_id",
        "is_observed",
        "meter",
        "needs_frame",
        "observation",
        "services",
    )
    observation: Any

    def __init__(
        self,
        services: Services,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        connection: ClientConnection,
        cached: CachedRequest | None = None,
    ) -> None:
        self.services = services
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.cached = cached
        self.meter: RequestMeter | None = None
        self.needs_frame = True
        self.blocks_connection = False
        self.is_observed = False

    @property
    def client_host(self) -> str:
        """The address of the client."""
        return self.connection.client_host

    def prepared(self, prepare: Callable[[Services, Request, int], Prepared], request: Request) -> Prepared:
        """Return `prepare(services, request, version)`: values derived from the request's constant fields and the
        metadata. They are kept for requests that repeat this one until the metadata change.
        """
        services, cached = self.services, self.cached
        if cached is None:
            return prepare(services, request, self.api_version)
        metadata_version = services.topics.metadata.version
        if cached.prepared_version != metadata_version:
            cached.prepared = prepare(services, request, self.api_version)
            cached.prepared_version = metadata_version
        return cached.prepared  # type: ignore[no-any-return]


class UsualAnswer:
    """A handler's usual answer: a reply that differs from earlier ones to the same request in a few fields only.

    values:  values of the varying fields, as the API declares them, in the order of the message.
    build:   makes the response, which is encoded if no form of the reply is known.
    records: records of the reply, if it has any.
    """

    __slots__ = ("build", "records", "values")

    def __init__(self, values: Sequence[Any], build: Callable[[], Any], records: Any = None) -> None:
        self.values = values
        self.build = build
        self.records = records


class ServedApis(Mapping[int, Api]):
    """The APIs of the table, by key; the module that declares one is imported at its first look-up."""

    def __init__(self) -> None:
        self._declared: dict[int, Api] = {}

    def declare(self, declared: Api) -> None:
        """Add an API. Raises ValueError if its key is declared twice."""
        earlier = self._declared.setdefault(declared.key, declared)
        if earlier is not declared:
            raise ValueError(f"API key {declared.key} is declared twice: {earlier.name} and {declared.name}")

    def declared(self) -> list[Api]:
        """The APIs of the modules that are imported by now, in the order of their keys."""
        return [self._declared[key] for key in sorted(self._declared)]

    def __getitem__(self, key: int) -> Api:
        found = self._declared.get(key)
        if found is None:
            import_module(f"{HANDLERS}.{SERVED[key].module}")
            found = self._declared[key]
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(SERVED)

    def __len__(self) -> int:
        return len(SERVED)


APIS: Final = ServedApis()


class CloseConnection(Exception):  # noqa: N818  # names the reaction, not the error
    """Closes the connection without a reply: the handler cannot answer, and the client must notice.

    Raised by Produce with acks=0, which has no reply that could carry an error. Source: Kafka's
    KafkaApis.handleProduceRequest.
    """


def _with_error_code(response: Callable[..., Response]) -> Callable[[Any, ErrorCode, int], Response]:
    return lambda request, error, version: response(error_code=error)


def _audited(
    handler: Callable[[RequestContext, Any], Any], audit: AuditedChanges, awaits_other_nodes: bool
) -> Callable[[RequestContext, Any], Any]:
    """A handler that notes the changes by its request in the audit log, once it has answered, and answers when other
    nodes know them, too."""

    @wraps(handler)
    def handle(context: RequestContext, request: Any) -> Any:
        answer = handler(context, request)
        confirmations = context.services.confirmations if awaits_other_nodes else None
        if confirmations is None and not isinstance(answer, Awaitable):
            note_changes(audit, context, request, answer)
            return answer

        async def answered() -> Any:
            response = await answer if isinstance(answer, Awaitable) else answer
            message = response.response if type(response) is SlicedResponse else response
            note_changes(audit, context, request, message)
            if confirmations is not None and not is_refused(request, message):
                await confirmations.everywhere()
            return response

        return answered()

    return handle


class Declaration(TypedDict, total=False):
    """The properties of an API that `@api` declares beside its messages.

    versions: lowest and highest version served, as `"0-5"`, or `"4"` for a single one.
    rights:   rights that a client needs; None for an API that needs none, or whose handler checks them itself.
    errors:   the error codes, besides NONE, that a reply may have anywhere, in any version.
    advertised_minimum: the lowest version that ApiVersions reports, if it is not the lowest served.
    unstable_from: first version whose message Kafka may still change: served, and shown, only with
        `unstable.api.versions.enable`.
    audit:    function that names the changes by a request; None unless the API is administrative.
    awaits_other_nodes: whether it changes metadata that all nodes share: it is answered when the change is in force on
        all of them.
    needs_lease: whether it answers from memory, as the leader of partitions or as a coordinator; without, the answer is
        true whenever it leaves, as the store guards it or every node would give it. True if not declared.
    failed:   `failed(request, error, version)` builds the reply in which everything failed with `error`. Without it
        that reply has the error code, and the defaults of all other fields.
    is_cancelled_on_disconnect: whether a waiting handler is cancelled when its client disconnects; all others run to
        their end.
    repeats:  the fields that vary if a client repeats its requests. The handler reads those of the request in its
        first step.
    """

    versions: Required[str]
    rights: Required[NeededRights | None]
    errors: Required[Errors]
    advertised_minimum: int
    unstable_from: int
    audit: AuditedChanges
    awaits_other_nodes: bool
    needs_lease: bool
    failed: Callable[[Any, ErrorCode, int], Any]
    is_cancelled_on_disconnect: bool
    repeats: Repeats


def api(
    request: type[Request], response: type[Response], **declared: Unpack[Declaration]
) -> Callable[[Callable[[RequestContext, Request], Any]], Callable[[RequestContext, Request], Any]]:
    """Declare the handler of an API.

    `python -m scripts.api_tables` writes the tables that have to exist before the handler's module is imported.
    A handler returns the response object, a `UsualAnswer`, or None when the client expects no reply (Produce with
    acks=0); or an awaitable of these, or of a `SlicedResponse`; or a `LongPoll`, which always ends with its client. It
    raises `CloseConnection` to close the connection instead.
    """
    first, _, last = declared["versions"].partition("-")
    audit = declared.get("audit")
    awaits_other_nodes = declared.get("awaits_other_nodes", False)

    def register(handler: Callable[[RequestContext, Request], Any]) -> Callable[[RequestContext, Request], Any]:
        key: int = request.api_key  # type: ignore[attr-defined]  # set by @message
        APIS.declare(
            Api(
                key=key,
                name=request.__name__.removesuffix("Request"),
                request=request,
                response=response,
                minimum_version=int(first),
                maximum_version=int(last or first),
                advertised_minimum=declared.get("advertised_minimum", int(first)),
                unstable_from=declared.get("unstable_from"),
                module=handler.__module__,
                handler=handler if audit is None else _audited(handler, audit, awaits_other_nodes),
                failed=declared.get("failed") or _with_error_code(response),
                rights=declared["rights"],
                errors=declared["errors"] | {ErrorCode.NONE},
                audit=audit,
                awaits_other_nodes=awaits_other_nodes,
                needs_lease=declared.get("needs_lease", True),
                is_cancelled_on_disconnect=declared.get("is_cancelled_on_disconnect", False),
                repeats=declared.get("repeats"),
            )
        )
        return handler

    return register
