"""Invariant 24: nothing stops in silence."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from fencepost.broker.coordination.runtime import PartitionState
from tests.simulation.broker import SimulatedBroker
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.invariant import Invariant, Violation

LONGEST_STANDSTILL_S = 15.0
"""Of a broker that is neither paused nor dead. The slowest sync takes 3 seconds, and the longest pause before a
coordinator's partition is loaded again 8."""


class NothingStopsInSilence(Invariant):
    """24. Whatever a broker meets, each of its partitions is served, or says that it is offline: what was appended
    becomes durable, a coordinator's partition is loaded, and a prepared transaction is on its way to its end.
    """

    number = 24

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._since_s: dict[Hashable, float] = {}

    def observe(self) -> Iterable[Violation]:
        found = [what for broker in self.evidence.world.brokers.values() for what in self._standing_still(broker)]
        now_s = self.evidence.now_s
        self._since_s = {what: self._since_s.get(what, now_s) for what in found}
        for what, since_s in self._since_s.items():
            if now_s - since_s > LONGEST_STANDSTILL_S:
                yield self.violation(f"nothing has happened for {now_s - since_s:.1f} s: {what[1:]}")  # type: ignore[index]  # a tuple
                self._since_s[what] = now_s

    def _standing_still(self, broker: SimulatedBroker) -> Iterator[tuple[object, ...]]:
        """What waits for something now, with how far it has come; the same as before where it stands still."""
        if not broker.is_running or broker.process.is_paused or broker.before is not None:
            return
        process, services = broker.process, broker.node.services
        for history, partition_log in self.evidence.live_logs():
            if history.node_id == broker.node_id and partition_log.config.is_durable:
                high, end = partition_log.high_watermark, partition_log.log_end_offset
                if high < end:
                    yield process, f"{history} is durable up to {high} and goes further"
        for runtime in (services.transactions._runtime, services.groups._runtime):
            for partition in runtime.partitions():
                if partition.state is PartitionState.LOADING:
                    yield process, f"partition {partition.index} of the {runtime.name} coordinator is loading"
        if len(self.evidence.world.brokers) > 1:
            return  # markers may wait for others there
        for partition in services.transactions._runtime.partitions():
            if partition.state is PartitionState.ACTIVE:
                for transactional_id, transaction in partition.shard.transactions.items():
                    is_under_way = transactional_id in services.transactions._completions
                    if transaction.state.is_prepared and not is_under_way:
                        yield process, f"{transactional_id} is prepared and nobody completes it"
