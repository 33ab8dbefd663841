"""The words in which a test speaks to a broker; every kind of broker for tests has these methods.

Topics, records, transactions and groups go over the wire. Faults, requests and the clock need a broker that is ours.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, Unpack

from fencepost.testing.apis import API_NAMES, api_key, error_code
from fencepost.testing.arguments import Content, bytes_of, check_requests_have, existing, text_of
from fencepost.testing.errors import FaultNeverFiredError, MisuseError, RefusedError, WaitedInVainError
from fencepost.testing.faults import AtSync, FaultKind, FaultOrder, Moment, Timed, Which
from fencepost.testing.requests import SeenRequest
from fencepost.testing.results import Group, Partition, Record, Transaction

WAIT_S: Final = 10.0
POLL_PAUSE_S: Final = 0.005
FENCE_TIMEOUT_MS: Final = 60_000


class Fault:
    """A fault that a test has set. As a context it ends with it, and has to have fired by then.

    optional: whether the test may end without the fault having fired.
    """

    def __init__(self, broker: BrokerMethods, order: FaultOrder, *, optional: bool) -> None:
        self._broker = broker
        self._number: int = broker.run_command("place", order)
        self._fired = 0
        self.order = order
        self.optional = optional

    @property
    def fired(self) -> int:
        """How many requests it has met."""
        self._fired = max(self._fired, self._broker.run_command("state", self._number).fired)
        return self._fired

    def count_as_fired(self, count: int) -> None:
        """Record the requests that a fault has met at once, and end it."""
        self._fired = count
        self.remove()

    @property
    def waiting(self) -> int:
        """How many requests it holds now."""
        waiting: int = self._broker.run_command("state", self._number).waiting
        return waiting

    def release(self) -> int:
        """Let the requests go that it holds; return how many. It goes on to hold later ones."""
        released: int = self._broker.run_command("release", self._number)
        return released

    def remove(self) -> None:
        """End the fault, and release its held requests."""
        self._broker.run_command("remove", self._number)

    def wait_until_fired(self, count: int = 1, *, timeout: float = WAIT_S) -> None:
        """Wait until it has met that number of requests. Raises WaitedInVainError."""
        self._broker.wait_until(
            lambda: self.fired >= count,
            timeout,
            lambda: f"{self} fired {self.fired} times, not {count}",
        )

    def check(self) -> None:
        """Raise FaultNeverFiredError if it has not fired and is not optional."""
        if not self.optional and not self.fired:
            raise FaultNeverFiredError(
                f"{self} never fired: no such request came, so the test shows nothing about it; make the code under "
                f"test send one, or give optional=True\n\n{self._broker.describe()}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
        if kind is None:
            self.check()

    def __str__(self) -> str:
        return str(self.order)

    def __repr__(self) -> str:
        return f"<{self.order}>"


class BrokerMethods(ABC):
    """Methods with which a test controls and queries a broker. Calls from several threads wait for each other.

    keeps_requests: whether the broker can show the requests of clients.
    """

    keeps_requests = True

    def __init__(self) -> None:
        self._cluster: Any = None
        self._cluster_address = ""
        self._lock = threading.RLock()
        self.faults: list[Fault] = []  # all that were set, in their order
        self.is_closed = False  # waits end then

    # Methods that each kind of broker has to define

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The address for clients, `host:port`."""

    def silence(self) -> MisuseError | None:
        """The reason why the broker cannot answer until the test does something about it."""
        return None

    @abstractmethod
    def run_command(self, command: str, *arguments: Any) -> Any:
        """Run a command of `fencepost.testing.control.Inside` where the broker runs."""

    # Topics and records

    def topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, object] | None = None) -> str:
        """Create a topic, and return its name. Raises MisuseError, RefusedError."""
        texts = {key: text_of(value) for key, value in (configs or {}).items()}
        try:
            with self._lock:
                self._wire().create_topic(name, partitions, texts)
        except RefusedError as refusal:
            if refusal.error == "TOPIC_ALREADY_EXISTS":
                raise MisuseError(
                    f"there is a topic {name!r} already: create it before clients use it, or leave the creation to them"
                ) from None
            raise
        return name

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name."""
        with self._lock:
            found: dict[str, int] = self._wire().topics()
            return found

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records. Raises MisuseError (no such topic), RefusedError."""
        with self._lock:
            self._leaders(topic)
            self._wire().delete_topic(topic)

    def produce(
        self,
        topic: str,
        *values: Content,
        key: Content = None,
        partition: int = 0,
        headers: Mapping[str, Content] | None = None,
        timestamp_ms: int | None = None,
    ) -> list[int]:
        """Append records to a topic, one for each value, and return their offsets. Creates the topic if need be.

        Texts are encoded as UTF-8.
        """
        from fencepost.protocol.record import Record as StoredRecord

        if not values:
            raise MisuseError(f"produce({topic!r}) has no values: give one for each record, or None for a tombstone")
        pairs = tuple((name, bytes_of(value)) for name, value in (headers or {}).items())
        at_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        records = [
            StoredRecord(index, at_ms, bytes_of(key), bytes_of(value), pairs) for index, value in enumerate(values)
        ]
        with self._lock:
            leaders = self._wire().leaders(topic)
            if leaders is None:
                self.topic(topic, partitions=partition + 1)
                leaders = self._wire().leaders(topic)
            if partition not in (leaders or {}):
                raise MisuseError(f"topic {topic!r} has no partition {partition}: it has {len(leaders or {})}")
            first: int = self._wire().produce(topic, partition, leaders[partition], records)
        return list(range(first, first + len(records)))

    def records(
        self,
        topic: str,
        *,
        count: int | None = None,
        partition: int | None = None,
        isolation: str = "read_committed",
        timeout: float = WAIT_S,
    ) -> list[Record]:
        """The records of a topic, partition by partition; those of open and aborted transactions are left out, unless
        `isolation` is `read_uncommitted`.

        Those of a transaction whose commit was confirmed are there: it waits for the markers, which follow, up to 5 s.
        count: wait until there are this many. Raises MisuseError (no such topic), WaitedInVainError.
        """
        if isolation not in ("read_committed", "read_uncommitted"):
            raise MisuseError(f"there is no isolation {isolation!r}: use 'read_committed' or 'read_uncommitted'")
        found: list[Record] = []

        def are_there() -> bool:
            found[:] = self._read(topic, partition, committed=isolation == "read_committed")
            return count is None or len(found) >= count

        self.wait_until(are_there, timeout, lambda: f"topic {topic!r} has {len(found)} records, not {count}")
        return found

    def _read(self, topic: str, partition: int | None, *, committed: bool) -> list[Record]:
        with self._lock:
            leaders = self._leaders(topic)
            wanted = sorted(leaders) if partition is None else [partition]
            if not set(wanted) <= leaders.keys():
                raise MisuseError(f"topic {topic!r} has no partition {partition}: it has {len(leaders)}")
            if committed:
                self._wire().wait_for_ends()
            return [
                record
                for index in wanted
                for record in self._wire().read(Partition(topic, index), leaders[index], 0, committed=committed)
            ]

    def _leaders(self, topic: str) -> dict[int, Any]:
        wire = self._wire()
        missing = f"there is no topic {topic!r}: create it with topic({topic!r}) first"
        leaders: dict[int, Any] = existing(topic, wire.leaders, wire.topics, missing)
        return leaders

    # Transactions and groups

    def transaction(self, transactional_id: str) -> Transaction:
        """The state of a transactional id. Raises MisuseError if no producer has used it."""
        missing = f"no producer has used the transactional id {transactional_id!r} yet: call init_transactions() first"
        with self._lock:
            wire = self._wire()
            found: Transaction = existing(transactional_id, wire.transaction, wire.transactional_ids, missing)
        return found

    def transactions(self) -> dict[str, str]:
        """The state of each transactional id."""
        with self._lock:
            found: dict[str, str] = self._wire().transactional_ids()
            return found

    def group(self, group_id: str) -> Group:
        """A group with its members, offsets and lag. Raises MisuseError if there is no such group."""
        missing = f"there is no group {group_id!r}: have a consumer join it, or commit an offset, first"
        with self._lock:
            wire = self._wire()
            wire.wait_for_ends()
            found: Group = existing(group_id, wire.group, wire.groups, missing)
        return found

    def groups(self) -> dict[str, str]:
        """The state of each group."""
        with self._lock:
            return {group_id: state for group_id, (_, state) in self._wire().groups().items()}

    def set_offset(self, group: str, topic: str, offset: int, *, partition: int = 0) -> None:
        """Commit an offset for a group from outside: the next one that it reads. Creates the group if need be.

        Raises MisuseError (no such partition), RefusedError (UNKNOWN_MEMBER_ID: the group has members).
        """
        with self._lock:
            if partition not in self._leaders(topic):
                raise MisuseError(f"topic {topic!r} has no partition {partition}: it has {len(self._leaders(topic))}")
            self._wire().set_offset(group, Partition(topic, partition), offset)

    def wait_for_lag(self, group: str, lag: int = 0, *, topic: str | None = None, timeout: float = WAIT_S) -> None:
        """Wait until a group has committed all but `lag` of the records that it can read. Raises WaitedInVainError.

        topic: only this one; a partition of it without a committed offset counts with all its records. Without it,
        partitions that the group has committed or was assigned count.
        """
        left: dict[Partition, int] = {}

        def is_reached() -> bool:
            found = self._lag(group, topic)
            if found is None:
                return False
            left.clear()
            left.update(found)
            return sum(left.values()) <= lag

        self.wait_until(
            is_reached,
            timeout,
            lambda: (
                f"group {group!r} has not come down to a lag of {lag}: "
                + (", ".join(f"{where} {count}" for where, count in left.items()) or "it has committed nothing")
            ),
        )

    def _lag(self, group_id: str, topic: str | None) -> dict[Partition, int] | None:
        """The lag by partition; None while the group has neither offsets nor partitions."""
        with self._lock:
            wire = self._wire()
            group = wire.group(group_id)
            if group is None:
                return None
            lag = {where: count for where, count in group.lag.items() if topic in (None, where.topic)}
            missing = {
                where
                for member in group.members
                for where in member.partitions
                if where not in lag and topic in (None, where.topic)
            }
            if topic is not None:
                missing |= {Partition(topic, index) for index in self._leaders(topic)} - lag.keys()
            for where in missing:
                leader = self._leaders(where.topic)[where.partition]
                lag[where] = sum(1 for _ in wire.read(where, leader, 0, committed=True))
            return lag or None

    # Requests and the clock

    def requests(
        self,
        api: str | int | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        transactional_id: str | None = None,
        group: str | None = None,
    ) -> list[SeenRequest]:
        """The requests that clients have sent, the oldest first; those of the helpers are left out."""
        order = FaultOrder(
            FaultKind.FAIL,
            "request",
            api_key=None if api is None else api_key(api),
            topic=topic,
            client_id=client_id,
            transactional_id=transactional_id,
            group=group,
        )
        found: list[SeenRequest] = self.run_command("requests")
        return [seen for seen in found if order.concerns(seen)]

    def advance(
        self, *, seconds: float = 0.0, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0, weeks: float = 0.0
    ) -> None:
        """Turn the broker's clock forward, and return when all that became due is done: transactions that timed out,
        members that fell silent, records past their retention.

        Clients' clocks stay: a consumer that polls in another thread counts as silent for all of this time.
        """
        total_s = seconds + 60 * (minutes + 60 * (hours + 24 * (days + 7 * weeks)))
        if total_s <= 0:
            raise MisuseError("advance() has no time to pass: give seconds, minutes, hours, days or weeks above 0")
        self.run_command("turn", total_s)

    # Faults

    def fail(self, api: str | int, error: str | int, **which: Unpack[Timed]) -> Fault:
        """Answer requests with an error; where a topic or partition is given, only for these.

        which: the requests, and when. By default the next one, before anything of it is done: `count` is 1, `on` is
        "request". All faults have these arguments.
        """
        chosen: Timed = {"count": 1, "on": "request", **which}
        return self._place(FaultKind.FAIL, api, chosen, chosen["on"], error=error_code(error))

    def delay(self, api: str | int | None = None, seconds: float = 1.0, **which: Unpack[Timed]) -> Fault:
        """Delay replies, or with on="request" requests, by the broker's clock; all of them, unless `count` is given."""
        chosen: Timed = {"count": None, "on": "reply", **which}
        return self._place(FaultKind.DELAY, api, chosen, chosen["on"], seconds=seconds)

    def hold(self, api: str | int | None = None, **which: Unpack[Timed]) -> Fault:
        """Hold replies, or with on="request" requests, until `release` or the end of the fault; all of them, unless
        `count` is given.
        """
        chosen: Timed = {"count": None, "on": "reply", **which}
        return self._place(FaultKind.HOLD, api, chosen, chosen["on"])

    def disconnect(self, api: str | int | None = None, **which: Unpack[Timed]) -> Fault:
        """Close the connection of the next request, or of `count`: after it was done, so that its reply is lost, or
        with on="request" before.

        Without an API, topic, transactional id or group, the connections of the client are closed at once, too.
        """
        chosen: Timed = {"count": 1, "on": "reply", **which}
        fault = self._place(FaultKind.DISCONNECT, api, chosen, chosen["on"])
        names_a_request = any(chosen.get(name) is not None for name in ("topic", "transactional_id", "group"))
        if api is None and not names_a_request and not chosen.get("after"):
            closed = self.run_command("disconnect", chosen.get("client_id"))
            if closed:
                fault.count_as_fired(closed)
        return fault

    def crash_after(self, api: str | int, *, durable: bool = True, **which: Unpack[Which]) -> Fault:
        """Crash the broker at a request: when all that it asks for is durable, before the reply leaves; or with
        durable=False when the broker has appended it, before it is durable, so that it is lost.

        `restart` brings the broker back. A broker in its own process is killed.
        """
        return self._place(FaultKind.CRASH, api, which, "reply" if durable else "sync")

    def fence(self, transactional_id: str) -> tuple[int, int]:
        """Begin a session of a transactional id, as another instance of its producer would: its open transaction is
        aborted, and the present producer is fenced. Return producer id and epoch of the new session.

        Raises MisuseError if no producer has used the id.
        """
        before = self.transaction(transactional_id)
        with self._lock:
            fenced: tuple[int, int] = self._wire().fence(transactional_id, before.timeout_ms or FENCE_TIMEOUT_MS)
        return fenced

    def _place(
        self,
        kind: FaultKind,
        api: str | int | None,
        which: Which | Timed,
        moment: Moment | AtSync,
        *,
        error: int = 0,
        seconds: float = 0.0,
    ) -> Fault:
        key = None if api is None else api_key(api)
        named = "" if key is None else API_NAMES[key]
        chosen: dict[str, Any] = dict(which)
        known = (Which if kind is FaultKind.CRASH else Timed).__annotations__
        if unknown := ", ".join(sorted(chosen.keys() - known.keys())):
            raise TypeError(f"{kind}() has no argument {unknown}; it has {', '.join(known)}")
        if moment not in ("request", "reply") and kind is not FaultKind.CRASH:
            raise MisuseError(
                f"a fault cannot happen on {moment!r}: use 'request' (before) or 'reply' (after it is done)"
            )
        check_requests_have(chosen, key, named)
        count, after = chosen.get("count", 1), chosen.get("after", 0)
        if count is not None and count < 1:
            raise MisuseError(f"a fault for {count} requests never fires: give a count of 1 or more, or None for all")
        if after < 0 or seconds < 0:
            raise MisuseError(f"a fault cannot be in the past: give {'after' if after < 0 else 'seconds'} of 0 or more")
        optional = chosen.pop("optional", False)
        chosen.pop("on", None)
        fault = Fault(self, FaultOrder(kind, moment, key, error=error, seconds=seconds, **chosen), optional=optional)
        self.faults.append(fault)
        return fault

    # The broker's view

    def describe(self, *, requests: int = 15) -> str:
        """Describe the broker's view for people: topics, transactions and their holders, groups, faults, and the
        latest requests.
        """
        from fencepost.testing.description import describe

        return describe(self, requests)

    # For the subclasses and the plugin

    def check_faults(self) -> None:
        """Raise FaultNeverFiredError for a fault that has not fired and is not optional."""
        for fault in self.faults:
            fault.check()

    def _wire(self) -> Any:
        from fencepost.testing.cluster import Cluster

        silence = self.silence()
        if silence is not None:
            raise silence
        address = self.bootstrap_servers
        if self._cluster is None or self._cluster_address != address:
            self.close_helpers()
            self._cluster, self._cluster_address = Cluster(address), address
        return self._cluster

    def close_helpers(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def wait_until(self, is_reached: Callable[[], bool], timeout_s: float, failure: Callable[[], str]) -> None:
        give_up_at_s = time.monotonic() + timeout_s
        while not is_reached():
            if self.is_closed:
                raise MisuseError(f"the broker was closed meanwhile: {failure()}")
            if time.monotonic() >= give_up_at_s:
                raise WaitedInVainError(f"{failure()} after {timeout_s:g} s\n\n{self.describe()}")
            time.sleep(POLL_PAUSE_S)
