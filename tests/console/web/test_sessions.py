"""Sessions of browsers."""

from __future__ import annotations

from fencepost.client.cluster import Cluster
from fencepost.client.session import ClientOptions
from fencepost.console.web.sessions import MOST_SESSIONS, Sessions


def test_requests_without_a_cookie_do_not_push_out_those_who_logged_in() -> None:
    sessions = Sessions()
    logged_in = sessions.begin(Cluster([], ClientOptions()), owns_cluster=True)
    for _ in range(MOST_SESSIONS + 50):
        sessions.begin(None)
    assert len(sessions) == MOST_SESSIONS
    assert sessions.find(logged_in.token) is logged_in
    logged_in.used_s -= 9 * 3600
    assert sessions.find(logged_in.token) is None
