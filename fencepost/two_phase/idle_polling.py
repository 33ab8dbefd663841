"""Background polling of confluent-kafka producers between their transactions.

librdkafka queues its statistics until the application polls. A service that waits an hour for work does not poll during
that hour: without this thread the queue would grow by a gigabyte.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any

PAUSE_S = 0.5
log = logging.getLogger(__name__)


class IdlePolling:
    """One daemon thread for all producers of a process; it ends with the last of them, and keeps none alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._producers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._failing: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, producer: Any) -> None:
        """Poll a producer from now on, whenever its `poll_if_idle` finds it idle."""
        with self._lock:
            self._producers.add(producer)
            if self._thread is None or not self._thread.is_alive():  # a process that was forked has none
                self._thread = threading.Thread(target=self._run, name="fencepost-idle-polling", daemon=True)
                self._thread.start()

    def remove(self, producer: Any) -> None:
        """Leave a producer alone: it is being closed."""
        with self._lock:
            self._producers.discard(producer)

    def _run(self) -> None:
        while self._poll_all():
            time.sleep(PAUSE_S)

    def _poll_all(self) -> bool:
        """Poll each producer that is idle; return whether there are producers left."""
        with self._lock:
            producers = list(self._producers)
            if not producers:
                self._thread = None
                return False
        for producer in producers:
            try:
                producer.poll_if_idle()
            except Exception:  # of a callback of the application: the next poll may succeed
                if producer not in self._failing:  # else a callback that always fails would fill the log
                    self._failing.add(producer)
                    log.exception("a callback of an idle producer failed")
            else:
                self._failing.discard(producer)
        return True


IDLE_POLLING = IdlePolling()
