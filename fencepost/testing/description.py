"""The broker's view in words, for the message of a failed test: clients, what each holds, the latest requests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from fencepost.testing.errors import MisuseError, RefusedError
from fencepost.testing.requests import SeenRequest
from fencepost.testing.results import Partition, Transaction

if TYPE_CHECKING:
    from fencepost.testing.cluster import Cluster

MOST_LINES = 30
PATIENCE_S = 2.0


class DescribedFault(Protocol):
    """A fault; its `str` names it."""

    @property
    def fired(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class Described(Protocol):
    """The parts of a test's broker that its description reads."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def faults(self) -> Sequence[DescribedFault]: ...

    @property
    def keeps_requests(self) -> bool: ...

    def requests(self) -> list[SeenRequest]: ...


def describe(broker: Described, request_count: int) -> str:
    """Several lines; never raises for a broker that does not answer."""
    lines = ["The broker's view"]
    try:
        from fencepost.testing.cluster import Cluster

        address = broker.bootstrap_servers
        lines[0] += f" ({address})"
        cluster = Cluster(address, timeout_s=PATIENCE_S)
        try:
            lines += _contents(cluster)
        finally:
            cluster.close()
    except (OSError, RuntimeError, RefusedError, MisuseError) as error:
        lines.append(f"  the broker does not answer: {error}")
    for fault in broker.faults:
        try:
            lines.append(f"  fault {fault}: fired {fault.fired} times, holds {fault.waiting}")
        except (OSError, RuntimeError, MisuseError) as error:
            lines.append(f"  fault {fault}: {error}")
    if not broker.keeps_requests:
        return "\n".join(lines)
    try:
        seen = broker.requests()
    except (OSError, RuntimeError, MisuseError):
        return "\n".join(lines)
    shown = [one for one in seen if one.api not in ("ApiVersions", "Metadata")][-request_count:]
    lines.append(f"  latest of {len(seen)} requests:" if shown else "  no requests of clients")
    begun_ms = shown[0].at_ms if shown else 0
    lines += [f"    +{(one.at_ms - begun_ms) / 1000:.3f} s  {one}" for one in shown]
    return "\n".join(lines)


def _contents(cluster: Cluster) -> Iterator[str]:
    from fencepost.testing.cluster import EARLIEST, LATEST

    transactions = [cluster.transaction(name) for name in sorted(cluster.transactional_ids())]
    holders = {
        where: transaction
        for transaction in transactions
        if transaction is not None
        for where in transaction.partitions
    }
    lines = []
    for topic, _ in sorted(cluster.topics().items()):
        for index, leader in sorted((cluster.leaders(topic) or {}).items()):
            where = Partition(topic, index)
            first = cluster.offset(where, leader, EARLIEST, committed=False)
            end = cluster.offset(where, leader, LATEST, committed=False)
            stable = cluster.offset(where, leader, LATEST, committed=True)
            held = ""
            if stable < end:
                holder = holders.get(where)
                by = "an open transaction" if holder is None else f"the transaction of {holder.transactional_id!r}"
                held = f"; read_committed ends at {stable}, held by {by}"
            lines.append(f"  topic {where}: offsets {first} to {end}{held}")
    yield from first_lines(lines, MOST_LINES)
    yield from first_lines([_line(transaction) for transaction in transactions if transaction is not None], MOST_LINES)
    groups = []
    for group_id, (kind, state) in sorted(cluster.groups().items()):
        group = cluster.group(group_id) if kind in ("classic", "consumer") else None
        if group is None:
            groups.append(f"  {kind} group {group_id!r}: {state}")
            continue
        members = ", ".join(
            f"{member.client_id} has {', '.join(map(str, member.partitions)) or 'nothing'}" for member in group.members
        )
        offsets = ", ".join(
            f"{where} at {offset}, lag {group.lag.get(where, 0)}" for where, offset in group.offsets.items()
        )
        groups.append(
            f"  {kind} group {group_id!r}: {group.state}; {members or 'no members'}; {offsets or 'no offsets'}"
        )
    yield from first_lines(groups, MOST_LINES)


def _line(transaction: Transaction) -> str:
    line = (
        f"  transactional id {transaction.transactional_id!r}: {transaction.state}, producer "
        f"{transaction.producer_id} epoch {transaction.producer_epoch}"
    )
    if transaction.start_ms is not None:
        line += f", open for {time.time() - transaction.start_ms / 1000:.1f} s of the machine's clock"
    if transaction.partitions:
        line += f", on {', '.join(map(str, transaction.partitions))}"
    return line


def first_lines(lines: Iterable[str], most: int) -> list[str]:
    """The first lines, and how many are left out."""
    found = list(lines)
    return found if len(found) <= most else [*found[: most - 1], f"… and {len(found) - most + 1} more"]
