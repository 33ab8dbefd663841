"""A worker's modules are kept out of its garbage collections, once all are imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from fencepost.spark import workers
from fencepost.spark.sink import FencepostSource


@pytest.fixture(autouse=True)
def _as_in_a_new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "_uses", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_the_first_use_may_still_import_modules_and_leave_garbage() -> None:
    workers.begin_use()
    assert gc.get_freeze_count() == 0


def test_from_the_second_use_on_a_collection_leaves_out_what_was_there_before() -> None:
    gc.collect()
    before = len(gc.get_objects())
    workers.begin_use()
    workers.begin_use()
    assert gc.get_freeze_count() > 0.9 * before
    assert len(gc.get_objects()) < before / 10


def test_what_a_later_use_leaves_is_collected() -> None:
    workers.begin_use()
    workers.begin_use()
    kept_before = gc.get_freeze_count()
    workers.begin_use()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1
    assert gc.get_freeze_count() <= kept_before


@pytest.mark.parametrize("kind", ["streamWriter", "writer"])
def test_each_writer_that_spark_makes_in_a_process_is_a_use_of_it(kind: str) -> None:
    source = FencepostSource({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "numbers"})
    schema = StructType([StructField("value", StringType())])
    getattr(source, kind)(schema, False)
    assert gc.get_freeze_count() == 0
    getattr(source, kind)(schema, False)
    assert gc.get_freeze_count() > 0
