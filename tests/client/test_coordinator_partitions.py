"""Partitions of coordinators' topics, as Java computes them."""

from __future__ import annotations

from fencepost.client.coordinator_partitions import java_hash, name_of_each, partition_of


def test_the_partition_of_a_transactional_id_is_javas() -> None:
    """Computed by a JVM."""
    assert java_hash("stuck-1") == -1879172032
    assert java_hash("") == 0
    assert java_hash("Zoë 😀") == -1607028339
    assert java_hash("polygenelubricants") == -(2**31)
    assert [partition_of(name, 50) for name in name_of_each(50)] == list(range(50))
    assert [partition_of(name, 50) for name in ("stuck-1", "shop-0", "polygenelubricants")] == [32, 21, 0]
