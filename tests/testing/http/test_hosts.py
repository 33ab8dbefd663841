"""Addresses of this machine alone, and requests of web pages."""

from __future__ import annotations

import pytest

from fencepost.testing.http.hosts import host_name, is_loopback, page_refusal


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_these_are_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org", "2130706433"]
)
def test_these_are_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:80", "a"), ("a", "a"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("", ""), ("[::1", "::1"), ("::1", ":")],
)
def test_a_host_header_has_a_name(host: str, name: str) -> None:
    assert host_name(host) == name


def test_a_request_of_a_page_is_refused_and_one_of_a_program_is_not() -> None:
    program = {"host": "127.0.0.1:80"}
    assert page_refusal(program) is None
    assert page_refusal({**program, "sec-fetch-site": "none", "sec-fetch-mode": "cors"}) is None
    statuses = [
        page_refusal(headers) for headers in ({}, {**program, "origin": ""}, {**program, "sec-fetch-site": "x"})
    ]
    assert [refused and refused[0] for refused in statuses] == [421, 403, 403]
