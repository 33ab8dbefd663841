"""Every task, timer, callback and thread of the broker is started through a place, and no place is without its test."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import fencepost.broker
from tests.broker.supervision.planting import PLANTED, all_places

TESTS = Path(__file__).resolve().parent.parent

STARTERS = {
    "Thread",
    "Timer",
    "add_done_callback",
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "call_at",
    "call_later",
    "call_soon",
    "call_soon_threadsafe",
    "create_task",
    "ensure_future",
    "run_coroutine_threadsafe",
    "run_in_executor",
    "start_new_thread",
    "to_thread",
}
"""What starts work that runs by itself; so does `eager.start`."""

ADVICE = """{where} starts background work without a policy for unexpected exceptions.
Start it through a place (fencepost/broker/kernel/supervision.py): WORK = Place("what it is", Policy.RETRY), then
WORK.start(coroutine), WORK.start_retrying(function) or loop.call_later(delay, WORK.callback(function)); or decorate a
function that catches BaseException itself with @WORK.catches_itself. Then plant an exception there, in
tests/broker/supervision. If other code handles its exceptions, add it to ALLOWED with the reason."""


_REPLY = "what it ends in is a reply, or the end of the connection: Connection._finished sees to both"
_AWAITED = "the function that starts it awaits it, and gets its exception"
_FORGETS = "takes one entry out of a dictionary, which cannot fail"

ALLOWED: dict[str, str] = {
    "fencepost.broker.check_back_host.decided_batches.DecidedBatches._batch": _AWAITED,
    "fencepost.broker.cluster.remote.remote_fetch.RemoteFetch._begin": _FORGETS,
    "fencepost.broker.cluster.postgres.lease_store.PostgresLeaseStore._end.end": _AWAITED,
    "fencepost.broker.cluster.machines.export.export_topics": _AWAITED,
    "fencepost.broker.inspection.cluster_import._import_logs": _AWAITED,
    "fencepost.broker.cluster.machines.log_import.LogImport._store_empty": _AWAITED,
    "fencepost.broker.process.processes._serve": "signal handlers that set an event; and a task that it awaits",
    "fencepost.broker.process.processes.Processes.all_ready": _AWAITED,
    "fencepost.broker.process.serve._serve": "a signal handler that sets an event or ends the process",
    "fencepost.broker.process.serve._stop_at_signals": "a signal handler that sets an event or ends the process",
    "fencepost.broker.network.authentication.Authentication._start": _REPLY,
    "fencepost.broker.network.dispatch.Dispatcher._start": _REPLY,
    "fencepost.broker.network.dispatch.Dispatcher._start_run": _REPLY,
    "fencepost.broker.network.dispatch._cancel_on_disconnect": _FORGETS,
    "fencepost.broker.kernel.eager.start": "the caller watches what it returns: calls of it are starts themselves",
    "fencepost.broker.produce.produce_verification.enter_verification_queue": _FORGETS,
    "fencepost.broker.produce.produce_append.ProduceAppend._verify_in_order": "its request awaits it",
    "fencepost.broker.produce.produce_append.ProduceAppend.start": "the request that it is a part of awaits it",
    "fencepost.broker.log.durability.flusher.Flusher._start": "the flusher watches its sync itself: _ended",
    "fencepost.broker.kernel.threads.on_a_thread": _AWAITED,
    "fencepost.broker.kernel.threads.on_a_thread.run": "resolves a future that is not done",
    "fencepost.broker.metadata.sqlite.SqliteMetadataStore._copy": _AWAITED,
    "fencepost.broker.metadata.sqlite.SqliteMetadataStore._submit": _AWAITED,
    "fencepost.broker.metadata.sqlite.SqliteMetadataStore._release": _AWAITED,
    "fencepost.broker.network.peer_security._log_in.log_in": _AWAITED,
    "fencepost.broker.network.peer_security._tls_connect.connect": _AWAITED,
    "fencepost.broker.network.tls_server.TlsServer._received": "resolves a future that is not done",
    "fencepost.broker.node.storage._close_on_thread": _AWAITED,
    "fencepost.broker.security.sasl.jwks.Jwks._read": _AWAITED,
    "fencepost.broker.security.sasl.jwks.Jwks._refresh": "takes the reading that has ended off, which cannot fail",
    "fencepost.broker.security.sasl.users_file.UsersFile.check": _AWAITED,
    "fencepost.broker.security.sasl.users_file.UsersFile.open": _AWAITED,
    "fencepost.broker.security.tls.BrokerTls._renew": _AWAITED,
    "fencepost.broker.security.tls.BrokerTls.problem_with": _AWAITED,
    "fencepost.broker.share.share_partitions.ServedSharePartitions.get": _FORGETS,
    "fencepost.broker.transaction.completion.Completion._deliver_all": _AWAITED,
    "fencepost.broker.transaction.completion.Completion._deliver_in_slices": _AWAITED,
    "fencepost.broker.transaction.completion.Completion.begin": "watched by COMPLETION_TASK in the same function",
}
"""Starts that go through no place, as `module.function`, with the reason. A test holds the broker to this list."""


class Start(NamedTuple):
    """A call that starts work. where: module and function."""

    where: str
    line: int
    is_supervised: bool


def is_place_call(node: ast.AST, method: str) -> bool:
    """`PLACE.method(...)`, of a place with the name of a constant."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id.isupper()
    )


class Scan(ast.NodeVisitor):
    """Finds the starts of one module."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module = module
        self.starts: list[Start] = []
        self.scopes: list[str] = []
        self.functions: list[ast.AST] = [tree]
        self.handled = {
            function.name
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for decorator in function.decorator_list
            if isinstance(decorator, ast.Attribute)
            and decorator.attr == "catches_itself"
            and isinstance(decorator.value, ast.Name)
        }

    def visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scopes.append(node.name)
        if not isinstance(node, ast.ClassDef):
            self.functions.append(node)
        self.generic_visit(node)
        if not isinstance(node, ast.ClassDef):
            self.functions.pop()
        self.scopes.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = visit_scope  # noqa: N815  # as ast calls them

    def visit_Call(self, node: ast.Call) -> None:  # as ast calls it
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        is_eager = (
            name == "start" and isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "eager"
        )
        if name in STARTERS or is_eager:
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            where = ".".join((self.module, *self.scopes))
            self.starts.append(Start(where, node.lineno, any(map(self.is_supervised, arguments))))
        self.generic_visit(node)

    def is_supervised(self, work: ast.expr) -> bool:
        if is_place_call(work, "callback"):
            return True
        if isinstance(work, ast.Call) and getattr(work.func, "id", "") == "partial":
            return bool(work.args) and self.is_supervised(work.args[0])
        if isinstance(work, ast.Attribute):
            # A set that forgets a task that is done: nothing in it can fail.
            return work.attr in self.handled or work.attr == "discard"
        return isinstance(work, ast.Name) and (work.id in self.handled or self.is_assigned_callback(work.id))

    def is_assigned_callback(self, name: str) -> bool:
        return any(
            isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
            and is_place_call(node.value, "callback")
            for function in self.functions
            for node in ast.walk(function)
        )


def starts_in(module: str, source: str) -> list[Start]:
    tree = ast.parse(source)
    scan = Scan(module, tree)
    scan.visit(tree)
    return scan.starts


@cache
def all_starts() -> list[Start]:
    return list(_all_starts())


def _all_starts() -> Iterator[Start]:
    root = Path(inspect.getfile(fencepost.broker)).parent
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("fencepost", "broker", *path.relative_to(root).with_suffix("").parts))
        if module != "fencepost.broker.kernel.supervision":
            yield from starts_in(module, path.read_text(encoding="utf-8"))


def test_all_work_that_runs_by_itself_is_started_through_a_place() -> None:
    naked = [start for start in all_starts() if not start.is_supervised and start.where not in ALLOWED]
    assert not naked, "\n".join(ADVICE.format(where=f"{start.where} (line {start.line})") for start in naked)


def test_nothing_is_allowed_that_is_not_there() -> None:
    naked = {start.where for start in all_starts() if not start.is_supervised}
    assert set(ALLOWED) == naked & set(ALLOWED)
    assert all(len(reason) > 20 for reason in ALLOWED.values())


def test_an_exception_is_planted_at_every_place() -> None:
    for path in sorted(TESTS.rglob("test_*.py")):
        if "supervision.planting" in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(("tests", "broker", *path.relative_to(TESTS).with_suffix("").parts)))
    places = {
        name
        for name, place in all_places().items()
        if place.__class__.__module__ == "fencepost.broker.kernel.supervision"
    }
    missing = sorted(places - set(PLANTED))
    assert not missing, f"plant an exception at each of these, with @plants (tests/broker/supervision): {missing}"


@pytest.mark.parametrize(
    ("statement", "is_supervised"),
    [
        ("asyncio.create_task(self.work())", False),
        ("loop.call_later(1, self.work)", False),
        ("loop.call_soon(self.handled)", True),
        ("loop.call_soon(partial(self.handled, 1))", True),
        ("loop.call_soon(partial(self.work, 1))", False),
        ("loop.call_later(1, WORK.callback(self.work), 1)", True),
        ("again = WORK.callback(self.work); loop.call_at(1, again)", True),
        ("again = self.work; loop.call_at(1, again)", False),
        ("task.add_done_callback(self.tasks.discard)", True),
        ("task.add_done_callback(lambda _: self.work())", False),
        ("threading.Thread(target=self.work)", False),
        ("threading.Thread(target=self.handled)", True),
        ("eager.start(self.work(), loop)", False),
    ],
)
def test_the_scan_distinguishes_supervised_from_naked_work(statement: str, is_supervised: bool) -> None:
    source = f"""
class Someone:
    @WORK.catches_itself
    def handled(self): ...
    def begin(self):
        {statement}
"""
    assert [start.is_supervised for start in starts_in("module", source)] == [is_supervised]
