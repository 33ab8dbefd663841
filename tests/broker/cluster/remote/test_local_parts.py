"""The order in which parts of remote segments are evicted: first those that their readers have passed."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.remote.local_parts import ASKED_FOR_S, SENT_FOR_S, LocalParts
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.segment.block_file import LocalBlock
from fencepost.broker.log.segment.block_layout import encode_block_checksums
from fencepost.broker.log.segment.remote_segment import RemoteSegment, RemoteSegmentMetadata
from fencepost.broker.storage.local_disk import LocalDisk

BLOCK_BYTES, BLOCKS_COUNT = 100, 8


class _NoStore:
    """No segment is fetched."""

    def fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> Awaitable[None]:
        raise AssertionError

    def fetch_part(self, topic_partition: TopicPartition, segment: RemoteSegment, part: int) -> Awaitable[None]:
        raise AssertionError

    def note_read(self, topic_partition: TopicPartition, segment: RemoteSegment, position: int, end: int) -> None:
        raise AssertionError


class World:
    """Segments of eight blocks of 100 bytes, and a clock."""

    def __init__(self, path: Path) -> None:
        self.now_s = 1_000.0
        self.disk = LocalDisk()
        self.parts = LocalParts(lambda: self.now_s)
        self.path = path

    def segment(self, base_offset: int = 0) -> RemoteSegment:
        checksums = encode_block_checksums(BLOCK_BYTES, [hashlib.sha256().digest()] * BLOCKS_COUNT)
        sealed = RemoteSegmentMetadata(
            base_offset, base_offset + 10, BLOCK_BYTES * BLOCKS_COUNT, 0, False, 0, uuid.uuid4(), None, None, checksums
        )
        files = PartitionFiles(self.disk, str(self.path))
        return RemoteSegment(files, TopicPartition("orders", 0), sealed, _NoStore(), 100)

    def add(self, segment: RemoteSegment, *numbers: int, is_asked_for: bool = False) -> None:
        for number in numbers:
            file = self.disk.open(f"{segment.log_blocks.path}.{number}.{uuid.uuid4().hex}")
            file.append(bytes(BLOCK_BYTES))
            segment.log_blocks.blocks[number] = LocalBlock(file)
            self.parts.add(segment, number, BLOCK_BYTES, is_asked_for=is_asked_for)
            self.now_s += 0.001

    def read(self, segment: RemoteSegment, position: int, end: int) -> None:
        self.now_s += 0.001
        self.parts.note_read(segment, position, end)

    @property
    def files_count(self) -> int:
        return len(os.listdir(self.path))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.disk.close()


def test_blocks_that_their_readers_have_passed_go_before_those_that_were_read_longest_ago(world: World) -> None:
    first, second = world.segment(), world.segment(10)
    world.add(first, 0, 1, 2)
    world.add(second, 0, 1)
    world.read(second, 0, 30)
    world.read(first, 0, 150)
    assert world.parts.passed_bytes == BLOCK_BYTES
    assert world.parts.evict(1) == BLOCK_BYTES
    assert list(first.log_blocks.blocks) == [1, 2], "the passed one, although it was read last"
    world.parts.evict(1)
    assert list(first.log_blocks.blocks) == [1], "nobody has read block 2"
    assert world.parts.evict(10**6) == 3 * BLOCK_BYTES
    assert (world.parts.total_bytes, world.parts.passed_bytes, len(world.parts), world.files_count) == (0, 0, 0, 0)


def test_a_second_reader_in_the_middle_of_a_block_keeps_it_until_it_has_passed_it_too(world: World) -> None:
    segment = world.segment()
    world.add(segment, 0, 1)
    world.read(segment, 0, 120)
    assert world.parts.is_passed(segment, 0)
    world.read(segment, 0, 40)
    assert not world.parts.is_passed(segment, 0)
    world.read(segment, 40, 110)
    assert world.parts.is_passed(segment, 0)


def test_what_a_reader_waits_for_stays_with_what_it_needs_beside_it_but_not_for_ever(world: World) -> None:
    segment = world.segment()
    world.add(segment, 0, is_asked_for=True)
    world.now_s += ASKED_FOR_S * 0.9
    world.add(segment, 1, is_asked_for=True)
    world.parts.keep(segment, 2)
    world.now_s += ASKED_FOR_S * 0.9
    assert world.parts.evict(10**6) == 0
    world.now_s += ASKED_FOR_S
    assert world.parts.evict(10**6) == 2 * BLOCK_BYTES


def test_what_is_being_sent_stays_but_not_for_a_client_that_takes_nothing(world: World) -> None:
    segment = world.segment()
    world.add(segment, 0, 1)
    held = segment.log_blocks.held(10, 50)
    assert world.parts.evict(10**6) == BLOCK_BYTES
    world.now_s += SENT_FOR_S + 1
    assert world.parts.evict(10**6) == BLOCK_BYTES
    assert held.path == segment.log_blocks.path


def test_what_nobody_reads_goes_and_so_does_all_of_a_closed_segment(world: World) -> None:
    idle, closed, read = (world.segment(base) for base in (0, 10, 20))
    world.add(idle, 0)
    world.add(closed, 0, 1)
    world.add(read, 0)
    world.now_s += 100
    world.read(read, 0, 50)
    closed.close()
    assert world.parts.evict_idle(60, 10**6) == BLOCK_BYTES
    assert (len(world.parts), world.files_count) == (1, 1)
    assert read.has(0)


def test_blocks_of_a_segment_that_is_local_by_now_go_first(world: World) -> None:
    segment, other = world.segment(), world.segment(10)
    world.add(other, 0)
    world.read(other, 0, 100)
    world.add(segment, 0)
    world.parts.let_go(segment)
    world.parts.evict(1)
    assert not segment.log_blocks.blocks
    assert other.log_blocks.blocks
