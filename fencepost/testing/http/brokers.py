"""The brokers of one program for tests, by their ids: each is made for a test, and closed by it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fencepost.broker.config import ConfigurationError
from fencepost.in_process import Broker
from fencepost.testing.errors import FaultNeverFiredError, MisuseError
from fencepost.testing.http.answers import Json
from fencepost.testing.http.given_settings import check_settings
from fencepost.testing.http.kinds import Flag, InputError, Listed, Nothing, Shape, Text, Whole
from fencepost.testing.http.ports import NoFreePortError, Ports, address, listener
from fencepost.testing.methods import Fault
from fencepost.testing.process import ProcessBroker

MOST_BROKERS: Final = 100
ENDING: Final = "the program is ending: start another"
PATIENCE_S: Final = 5.0
"""At the end, for an operation that starts or stops a broker."""

BROKER = Shape(
    "Broker",
    {
        "broker": (Text(), "Its id, for addresses of operations."),
        "bootstrap_servers": (Text(), "`host:port` for clients."),
        "is_running": (Flag(), "False after `stop`, `crash`, and a crash by a fault."),
        "process_id": (Nothing(Whole(1, 2**31)), "Of a broker in a process of its own that runs; else null."),
    },
)
CLOSED = Shape(
    "Closed",
    {
        "never_fired": (Listed(Text(1_000_000), 1_000_000), "A sentence for each fault that had to fire and did not."),
        "description": (Nothing(Text(1_000_000)), "The broker's view, if a fault has not fired."),
        "kept": (Nothing(Text(4096)), "Directory with the broker's data, if `keep` was asked for."),
    },
)


class NoSuchBrokerError(Exception):
    """There is no broker with an id, or not any more."""


class NoSuchFaultError(Exception):
    """A broker has no fault with a number."""


class TooManyBrokersError(Exception):
    """As many brokers as may be are there."""


class TestBroker:
    """A broker of a test. Its threads may call `broker` side by side; those that start or stop it do so `alone`.

    faults have numbers from 1, in the order in which they were set. published: its port in a container; else None.
    """

    __test__ = False

    def __init__(self, id_: str, broker: Broker | ProcessBroker, *, published: int | None = None) -> None:
        self.id = id_
        self.broker = broker
        self.published = published
        self.lifecycle = threading.Lock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other thread start, stop or close the broker meanwhile. Raises NoSuchBrokerError if it was closed."""
        with self.lifecycle:
            if self.broker.is_closed:  # while this thread waited: a start would leave a broker that nobody closes
                raise NoSuchBrokerError(f"there is no broker {self.id!r} any more: it was closed meanwhile")
            yield

    @property
    def process(self) -> ProcessBroker:
        """The broker, for operations on its process. Raises MisuseError if it has none of its own."""
        if not isinstance(self.broker, ProcessBroker):
            raise MisuseError(
                "the broker is a thread of fencepost test-broker, which cannot be frozen alone: create one with "
                "process=true"
            )
        return self.broker

    def fault(self, number: int) -> Fault:
        """Raises NoSuchFaultError."""
        if not 1 <= number <= len(self.broker.faults):
            raise NoSuchFaultError(
                f"the broker {self.id!r} has no fault {number}: it has {len(self.broker.faults)}, numbered from 1"
            )
        return self.broker.faults[number - 1]

    def number_of(self, fault: Fault) -> int:
        return self.broker.faults.index(fault) + 1

    def state(self) -> Json:
        is_process = isinstance(self.broker, ProcessBroker)
        try:
            process_id = self.process.process_id if is_process else None
        except MisuseError:  # it does not run
            process_id = None
        return {
            "broker": self.id,
            "bootstrap_servers": address(self.published) if self.published else self.broker.bootstrap_servers,
            "is_running": self.broker.is_running,
            "process_id": process_id,
        }


class Brokers:
    """All brokers of a program. Its methods are called from several threads.

    host: the address that the brokers listen on. ports: in a container, those that the brokers take.
    """

    def __init__(self, host: str = "127.0.0.1", ports: Ports | None = None) -> None:
        self._host = host
        self._ports = ports
        self._lock = threading.Lock()
        self._brokers: dict[str, TestBroker] = {}
        self._starting = 0
        self._next_number = 1
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._brokers)

    def all(self) -> list[TestBroker]:
        """In the order in which they were created."""
        with self._lock:
            return list(self._brokers.values())

    def find(self, id_: str) -> TestBroker:
        """Raises NoSuchBrokerError."""
        found = self._brokers.get(id_)
        if found is None:
            raise NoSuchBrokerError(f"there is no broker {id_!r}: it was closed, or never created; POST /brokers does")
        return found

    def create(self, settings: Mapping[str, object], *, in_process: bool) -> TestBroker:
        """Start a broker, and return it when clients are served.

        in_process: whether it gets a process of its own. Raises TooManyBrokersError, InputError (a setting), and as
        `Broker.start`.
        """
        check_settings(settings, in_process=in_process)
        with self._lock:
            if self._is_closed:
                raise NoSuchBrokerError(ENDING)
            if len(self._brokers) + self._starting >= MOST_BROKERS:
                raise TooManyBrokersError(
                    f"{MOST_BROKERS} brokers are there already, and that is the limit: close those of tests that have "
                    "ended, with DELETE /brokers/{broker}; GET /brokers lists them"
                )
            self._starting += 1
            id_ = f"b{self._next_number}"
            self._next_number += 1
        port: int | None = None
        created: TestBroker | None = None
        try:
            port = self._take_port(settings)
            broker = self._make(settings, port, in_process=in_process)
            try:
                broker.start()
            except ConfigurationError as error:
                raise InputError(f"settings are refused: {error}") from None
            except BaseException:
                broker.close()
                raise
            created = TestBroker(id_, broker, published=port)
        finally:
            with self._lock:
                self._starting -= 1
            if created is None:
                self._give_back(port)
        if not self._add(created):
            broker.close()
            raise NoSuchBrokerError(ENDING)
        return created

    def _take_port(self, settings: Mapping[str, object]) -> int | None:
        """Raises InputError, TooManyBrokersError."""
        if self._ports is None:
            return None
        for name in ("listeners", "advertised.listeners"):
            if name in settings:
                raise InputError(f"settings has {name}, but brokers in a container take published ports: leave it out")
        try:
            return self._ports.take()
        except NoFreePortError as error:
            raise TooManyBrokersError(str(error)) from None

    def _give_back(self, port: int | None) -> None:
        if self._ports is not None and port is not None:
            self._ports.give_back(port)

    def _make(self, settings: Mapping[str, object], port: int | None, *, in_process: bool) -> Broker | ProcessBroker:
        given = dict(settings)
        at = None
        if port is not None:
            at = listener(port)
            given["advertised.listeners"] = f"PLAINTEXT://{address(port)}"
        if in_process:
            return ProcessBroker(settings=given, listener=at)
        if at is not None:
            given["listeners"] = at
        return Broker(host=self._host, port=0, settings=given, durable=False)

    def _add(self, created: TestBroker) -> bool:
        """Returns False if all brokers were closed meanwhile."""
        with self._lock:
            if not self._is_closed:
                self._brokers[created.id] = created
            return not self._is_closed

    def close(self, id_: str, *, keep: bool = False) -> Json:
        """Close a broker; from now on it cannot be found. Raises NoSuchBrokerError.

        keep: whether its data are copied to a directory that stays.
        """
        with self._lock:
            closing = self._brokers.pop(id_, None)
        if closing is None:
            raise NoSuchBrokerError(f"there is no broker {id_!r}: it was closed, or never created")
        with closing.lifecycle:
            broker = closing.broker
            try:
                if isinstance(broker, ProcessBroker):
                    broker.thaw()  # it could not say which faults have fired
                never_fired = [sentence for fault in broker.faults if (sentence := _complaint(fault)) is not None]
                description = broker.describe() if never_fired else None
                kept = _keep(broker, id_) if keep else None
            finally:
                broker.close()
                self._give_back(closing.published)
        return {"never_fired": never_fired, "description": description, "kept": kept}

    def close_all(self) -> None:
        """Close all brokers, and create none any more."""
        with self._lock:
            self._is_closed = True
            closing = list(self._brokers.values())
            self._brokers.clear()
        for one in closing:
            is_free = one.lifecycle.acquire(timeout=PATIENCE_S)
            try:
                one.broker.close()
            finally:
                if is_free:
                    one.lifecycle.release()


def _complaint(fault: Fault) -> str | None:
    if fault.optional or fault.fired:
        return None
    try:
        fault.check()
    except FaultNeverFiredError as error:
        return str(error).partition("\n")[0]
    return None


def _keep(broker: Broker | ProcessBroker, id_: str) -> str | None:
    directory = broker.data_to_keep()
    if directory is None:
        return None
    kept = Path(tempfile.mkdtemp(prefix=f"fencepost-kept-{id_}-")) / "data"
    shutil.copytree(directory, kept)
    return str(kept)
