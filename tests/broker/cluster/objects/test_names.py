"""Names of objects: what they look like, and that they are read back."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.cluster.objects.names import (
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SegmentName,
    flush_name,
    flush_of,
    flushes_prefix,
    partition_prefix,
    segment_of,
    topic_prefix,
)

TOPIC_ID = bytes(range(16))
OBJECT = uuid.UUID(int=7)
IDS = st.from_regex(r"\A[A-Za-z0-9_\-]{1,22}\Z")
segments = st.builds(
    SegmentName,
    IDS,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 100_000),
    st.integers(0, 2**63 - 1),
    st.uuids(),
)


def test_a_segments_files_are_named_as_on_a_disk() -> None:
    name = SegmentName("cluster", TOPIC_ID, 3, 42, OBJECT)
    directory = f"cluster/log/{TOPIC_ID.hex()}/3/00000000000000000042-{OBJECT.hex}/"
    assert name.directory == directory
    assert name.file(".log") == f"{directory}00000000000000000042.log"
    assert name.file(SNAPSHOT_SUFFIX, 50) == f"{directory}00000000000000000050.snapshot"


@given(segments, st.integers(0, 2**63 - 1))
def test_each_file_of_a_segment_leads_back_to_it(name: SegmentName, end_offset: int) -> None:
    files = [name.file(suffix, end_offset) for suffix in SEGMENT_SUFFIXES]
    assert len(set(files)) == len(SEGMENT_SUFFIXES)
    for file in [name.directory, *files]:
        assert segment_of(file) == name
        assert flush_of(file) is None
        assert file.startswith(partition_prefix(name.cluster_id, name.topic_id, name.partition))
        assert file.startswith(topic_prefix(name.cluster_id, name.topic_id))


@given(IDS, st.uuids())
def test_a_flush_leads_back_to_its_object(cluster_id: str, object_id: uuid.UUID) -> None:
    name = flush_name(cluster_id, object_id)
    assert flush_of(name) == object_id
    assert segment_of(name) is None
    assert name.startswith(flushes_prefix(cluster_id))


@given(st.text())
def test_other_names_are_of_nothing(name: str) -> None:
    assert flush_of(name) is None
    assert segment_of(name) is None
