"""Spark's Python workers: processes that are used again and again, and collect their garbage after each use."""

from __future__ import annotations

import gc

_uses = 0


def begin_use() -> None:
    """Note that Spark uses this process once more; at the second use, spare its modules all later collections.

    PySpark collects the garbage of a worker after each use of it. Nearly all that it looks at are the modules, of
    PySpark, pandas and pyarrow: 30 ms of processor time, for each task and three more times for each batch. At the
    second use all are imported, and the collection after the first one has left no garbage that would be kept.
    """
    global _uses
    _uses += 1
    if _uses == 2:
        gc.freeze()
