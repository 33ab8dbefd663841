"""Invariant 50: a topic that is created again under its name is another one."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.invariants.invariant import Invariant, Violation


class AnotherTopicOfTheName(Invariant):
    """50. Nothing that is acknowledged after a topic was created again is lost, and nothing of the deleted topic with
    its name is served: no record, and no committed offset.

    The clients keep the evidence: see `tests.simulation.clients.recreator`.
    """

    number = 50

    def observe(self) -> Iterable[Violation]:
        findings, self.evidence.world.recreations.findings = self.evidence.world.recreations.findings, []
        for sentence, evidence in findings:
            yield self.violation(sentence, evidence)
