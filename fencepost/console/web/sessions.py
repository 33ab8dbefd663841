"""Who looks at the console: sessions with their clients of the cluster, known by a cookie."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.console.reading.groups import ListedGroup
from fencepost.console.reading.lags import ReadableCounts

COOKIE: Final = "fencepost_console"
IDLE_S: Final = 8 * 3600.0
MOST_SESSIONS: Final = 500
MOST_SAMPLES: Final = 120


@dataclass
class Session:
    """A browser's session. cluster: None until a person has logged in, if that is needed.

    notice: said once, on the next page. samples: (seconds, sum of the partitions' ends) as the overview read them.
    groups_by_topic: time at which they were read, in seconds, and the groups with offsets of each topic.
    """

    token: str
    cluster: Cluster | None
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used_s: float = field(default_factory=time.monotonic)
    notice: str = ""
    samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    groups_by_topic: tuple[float, dict[str, list[ListedGroup]]] | None = None
    readable_counts: ReadableCounts = field(default_factory=ReadableCounts)
    owns_cluster: bool = False

    def accepts(self, csrf: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())


class Sessions:
    """All sessions; the least recently used go first when there are too many."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, token: str | None) -> Session | None:
        """The session of a cookie, unless it has been idle for too long."""
        session = self._sessions.get(token or "")
        if session is None:
            return None
        now_s = time.monotonic()
        if now_s - session.used_s > IDLE_S:
            self.end(session)
            return None
        session.used_s = now_s
        self._sessions.move_to_end(session.token)
        return session

    def begin(self, cluster: Cluster | None, *, owns_cluster: bool = False) -> Session:
        """Make a session. owns_cluster: its client is closed with it."""
        now_s = time.monotonic()
        for session in [one for one in self._sessions.values() if now_s - one.used_s > IDLE_S]:
            self.end(session)
        if len(self._sessions) >= MOST_SESSIONS:
            # Those that nobody logged in for go first: anybody can make one, by a request without a cookie.
            used_least = min(self._sessions.values(), key=lambda one: (one.owns_cluster, one.used_s))
            self.end(used_least)
        session = Session(secrets.token_urlsafe(32), cluster, owns_cluster=owns_cluster)
        self._sessions[session.token] = session
        return session

    def end(self, session: Session) -> None:
        self._sessions.pop(session.token, None)
        if session.owns_cluster and session.cluster is not None:
            session.cluster.close()

    def end_all(self) -> None:
        for session in list(self._sessions.values()):
            self.end(session)
