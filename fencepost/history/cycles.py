"""Cycles among committed transactions, after Adya and Elle.

G1c: in a cycle, each transaction reads, at read_committed, from the one before it, or follows it in the same client.
None of them can have been the first to commit.
G0: in a cycle over several partitions, each transaction's write lies before a write of the next one. Kafka permits
it: transactions under way at the same time do not wait for each other's writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fencepost.history.findings import Anomaly, AnomalyFinding, Proof, began, finding
from fencepost.history.model import History, Send, Transaction

# The number of transactions of a component from which the smallest cycle is searched; usually the first one finds it.
STARTS_LIMIT = 64


@dataclass(slots=True)
class ReadCycles:
    """findings; explained: (reading line, transaction read) of the reads in them."""

    findings: list[AnomalyFinding]
    explained: set[tuple[int, Transaction]]


def find_read_cycles(history: History) -> ReadCycles:
    """Find G1c: the smallest cycle of each strongly connected component of transactions."""
    edges: dict[Transaction, dict[Transaction, tuple[int, Send] | None]] = {}
    for transaction in history.transactions:
        if not transaction.may_be_committed:
            continue
        former = transaction.former
        while former is not None and not former.may_be_committed:
            former = former.former
        if former is not None:
            edges.setdefault(former, {})[transaction] = None
        for source, line_and_send in transaction.reads.items():
            if source is not transaction and source.may_be_committed:
                edges.setdefault(source, {})[transaction] = line_and_send
    cycles = ReadCycles([], set())
    for cycle in _smallest_cycles(edges):
        proofs = []
        for source, target in _around(cycle):
            read = edges[source][target]
            if read is None:
                proofs.append(
                    Proof(target.line, f"{target.client} begins its transaction after that of line {source.line}")
                )
            else:
                line, send = read
                proofs.append(
                    Proof(send.line, f'{source.client} sends "{send.value}" in its transaction of line {source.line}')
                )
                proofs.append(
                    Proof(line, f'{target.client} reads "{send.value}" for its transaction of line {target.line}')
                )
                cycles.explained.add((line, source))
        names = ", ".join(f"{one.client} (line {one.line})" for one in cycle)
        summary = f"each of {len(cycle)} transactions comes after the one before it, in a circle: {names}"
        cycles.findings.append(finding(Anomaly.READ_CYCLE, summary, *proofs))
    return cycles


def find_write_cycles(history: History) -> Iterator[AnomalyFinding]:
    """Find G0: the smallest cycle of each strongly connected component of transactions."""
    edges: dict[Transaction, dict[Transaction, tuple[Send, Send]]] = {}
    for partition in history.partitions.values():
        former: Send | None = None
        for _, send in sorted(partition.log.items(), key=_by_offset):
            transaction = send.transaction
            if transaction is None or send.is_displaced or not transaction.is_committed:
                continue
            if former is not None and former.transaction is not transaction and former.transaction is not None:
                edges.setdefault(former.transaction, {}).setdefault(transaction, (former, send))
            former = send
    for cycle in _smallest_cycles(edges):
        proofs: list[Proof] = [began(one) for one in cycle]
        for source, target in _around(cycle):
            for send in edges[source][target]:
                line = send.outcome_line if send.acknowledged_offset == send.offset else send.read_line
                proofs.append(
                    Proof(line, f'"{send.value}" of {send.client} is at offset {send.offset} of {send.partition}')
                )
        names = ", ".join(f"{one.client} (line {one.line})" for one in cycle)
        summary = f"each of {len(cycle)} transactions writes before the next one, in a circle: {names}"
        yield finding(Anomaly.WRITE_CYCLE, summary, *proofs)


def _by_offset(entry: tuple[int, Send]) -> int:
    return entry[0]


def _around(cycle: list[Transaction]) -> Iterator[tuple[Transaction, Transaction]]:
    return zip(cycle, [*cycle[1:], cycle[0]], strict=True)


def _smallest_cycles(edges: Mapping[Transaction, Mapping[Transaction, object]]) -> Iterator[list[Transaction]]:
    for tangle in _strongly_connected(edges):
        members = set(tangle)
        smallest: list[Transaction] | None = None
        for start in sorted(tangle, key=lambda one: one.line)[:STARTS_LIMIT]:
            cycle = _cycle_from(start, members, edges)
            if smallest is None or len(cycle) < len(smallest):
                smallest = cycle
            if len(smallest) == 2:
                break
        assert smallest is not None
        yield smallest


def _cycle_from(
    start: Transaction, members: set[Transaction], edges: Mapping[Transaction, Mapping[Transaction, object]]
) -> list[Transaction]:
    """The shortest path from a transaction back to itself; it exists, because its component is strongly connected."""
    came_from: dict[Transaction, Transaction] = {}
    waiting = deque([start])
    while True:
        node = waiting.popleft()
        for target in edges.get(node, ()):
            if target is start:
                cycle = [node]
                while cycle[-1] is not start:
                    cycle.append(came_from[cycle[-1]])
                return cycle[::-1]
            if target in members and target not in came_from:
                came_from[target] = node
                waiting.append(target)


def _strongly_connected(edges: Mapping[Transaction, Iterable[Transaction]]) -> Iterator[list[Transaction]]:
    """The strongly connected components of more than one transaction (Tarjan's algorithm, without recursion)."""
    index: dict[Transaction, int] = {}
    low: dict[Transaction, int] = {}
    stack: list[Transaction] = []
    on_stack: set[Transaction] = set()
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        path = [(root, iter(edges[root]))]
        while path:
            node, targets = path[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    path.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    component: list[Transaction] = []
                    while not component or component[-1] is not node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    if len(component) > 1:
                        yield component
