"""A finding has the lines that prove it, in their order."""

from __future__ import annotations

from fencepost.history.findings import Anomaly, Proof, finding


def test_proofs_are_in_the_order_of_lines_and_none_stands_twice() -> None:
    found = finding(Anomaly.DUPLICATE, "twice", Proof(7, "read"), None, Proof(2, "sent"), Proof(7, "read"))
    assert found.proofs == (Proof(2, "sent"), Proof(7, "read"))


def test_a_proof_without_a_line_is_left_out() -> None:
    assert finding(Anomaly.LOST_WRITE, "lost", Proof(0, "acknowledged"), Proof(3, "sent")).proofs == (Proof(3, "sent"),)
