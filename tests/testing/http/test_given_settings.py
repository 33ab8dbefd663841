"""Settings that a test gives to its broker."""

from __future__ import annotations

import pytest

from fencepost.testing.http.given_settings import check_settings, hosts_in
from fencepost.testing.http.kinds import InputError


@pytest.mark.parametrize(
    ("settings", "in_process", "said"),
    [
        ({"no.such": 1}, False, "settings: unknown setting 'no.such'"),
        ({"num.partitions": True}, True, "settings: num.partitions: expected whole number, 1 or more; got 'true'"),
        ({"log.dir": "/elsewhere"}, False, "settings has log.dirs, but data are temporary here"),
        ({"listeners": "PLAINTEXT://0.0.0.0:0"}, False, "settings has listeners at '0.0.0.0'"),
        ({"listeners": "A://127.0.0.1:0, B://10.0.0.1:0"}, False, "settings has listeners at '10.0.0.1'"),
        ({"listeners": "PLAINTEXT://:0"}, False, "settings has listeners at ''"),
        ({"advertised.listeners": "A://[2001:db8::1]:1"}, True, "settings has advertised.listeners at '2001:db8::1'"),
        ({"fencepost.http.listener": "0.0.0.0:0"}, False, "settings has fencepost.http.listener at '0.0.0.0'"),
        ({"fencepost.http.listener": "https://[::]:0"}, True, "settings has fencepost.http.listener at '::'"),
        ({"num.partitions": 1001}, False, "settings has num.partitions 1001: give 1,000 at most"),
        ({"offsets.topic.num.partitions": 10**9}, True, "settings has offsets.topic.num.partitions 1000000000: give"),
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, True, "settings has listeners, but a broker with process=true"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, object], in_process: bool, said: str) -> None:
    with pytest.raises(InputError) as raised:
        check_settings(settings, in_process=in_process)
    assert str(raised.value).startswith(said)


def test_listeners_of_this_machine_and_any_other_setting_may_be_given() -> None:
    check_settings({}, in_process=True)
    check_settings(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://[::1]:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            "fencepost.http.listener": "localhost:0",
            "auto.create.topics.enable": False,
            "transaction.state.log.num.partitions": 1000,
        },
        in_process=False,
    )


def test_hosts_are_found_in_addresses() -> None:
    assert hosts_in("A://h:1, B://[::1]:2 ,https://x:3,y:4,://z") == ["h", "::1", "x", "y", "z"]
    assert hosts_in("") == []
