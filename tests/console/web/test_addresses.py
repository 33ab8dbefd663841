"""Links keep the cluster."""

from __future__ import annotations

import pytest

from fencepost.console.web.addresses import links_with_base, with_base


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/", "/c/prod/"),
        ("/topics/orders?page=2", "/c/prod/topics/orders?page=2"),
        ("/log-in", "/c/prod/log-in"),
        ("/clusters", "/clusters"),
        ("/log-out", "/log-out"),
        ("/static/console.css", "/static/console.css"),
        ("/c/other/topics", "/c/other/topics"),
        ("//evil.example", "//evil.example"),
        ("/\\evil.example", "/\\evil.example"),
        ("https://login.example/authorize", "https://login.example/authorize"),
        ("?page=2", "?page=2"),
    ],
)
def test_an_address_gets_the_cluster_in_front_unless_it_is_of_none(address: str, expected: str) -> None:
    assert with_base(address, "/c/prod") == expected
    assert with_base(address, "") == address


def test_links_and_forms_of_a_page_get_the_cluster_and_texts_stay() -> None:
    html = (
        '<a href="/topics">href=&#34;/topics&#34;</a> <form action="/change/x"> <a href="?q=1"> '
        '<a href="/theme?to=dark">'
    )
    assert links_with_base(html, "/c/prod") == (
        '<a href="/c/prod/topics">href=&#34;/topics&#34;</a> <form action="/c/prod/change/x"> <a href="?q=1"> '
        '<a href="/theme?to=dark">'
    )
