"""Keys go to the same partitions as with other clients."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as of_kafka_python

from fencepost.client.partitioner import murmur2, partition_of_key


@given(st.binary(max_size=100))
def test_the_hash_is_that_of_another_client(key: bytes) -> None:
    assert murmur2(key) == of_kafka_python(key) & 0xFFFFFFFF


def test_a_key_has_one_partition_of_those_that_there_are() -> None:
    # Source: Kafka's UtilsTest.
    assert murmur2(b"21") - (1 << 32) == -973932308
    assert murmur2(b"foobar") - (1 << 32) == -790332482
    assert {partition_of_key(str(number).encode(), 7) for number in range(200)} == set(range(7))
