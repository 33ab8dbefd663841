"""Settings of resolvers: what is read, and what each mistake is answered with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fencepost.check_back.properties import ResolverSettingsError, resolver_settings, resolver_warnings
from fencepost.check_back.settings import Exhausted, ResolverSettings

ORDERS = {
    "resolvers": "orders",
    "orders.ids": "order-*",
    "orders.type": "http",
    "orders.url": "https://orders.internal/outcome/{token}",
}


def named(texts: Mapping[str, str]) -> dict[str, str]:
    return {f"fencepost.check.back.{name}": text for name, text in texts.items()}


def problems(texts: Mapping[str, str]) -> dict[str, str]:
    """By name without its prefix, what is said of each wrong setting."""
    with pytest.raises(ResolverSettingsError) as raised:
        resolver_settings(named(texts))
    assert all("\n" not in problem for _, problem in raised.value.problems)
    return {name.removeprefix("fencepost.check.back."): problem for name, problem in raised.value.problems}


def test_resolvers_are_read_in_the_order_of_the_list(tmp_path: Path) -> None:
    dsn_file, ca_file, bearer_file = tmp_path / "shop.dsn", tmp_path / "ca.pem", tmp_path / "bearer"
    for file in (dsn_file, ca_file, bearer_file):
        file.write_text("x")
    found = resolver_settings(
        named(
            {
                "spark.topic": "fencepost-sink-orders",
                "spark.type": "record",
                "spark.ids": "sink-*",
                "resolvers": " orders, shop ,spark,",
                "shop.ids": "shop-*, till-?",
                "shop.type": "sql",
                "shop.dsn.file": str(dsn_file),
                "shop.claim": "session",
                "shop.table": "shop.fencepost_prepared",
                "orders.ids": "order-*",
                "orders.type": "http",
                "orders.url": "https://orders.internal:8443/outcome?of={token}&since={started_ms}",
                "orders.ca.file": str(ca_file),
                "orders.bearer.file": str(bearer_file),
                "orders.first.ms": "0",
                "orders.interval.ms": " 1000 ",
                "orders.backoff": "1.5",
                "orders.interval.max.ms": "60000",
                "orders.checks.max": "3",
                "orders.timeout.ms": "500",
                "orders.concurrency": "2",
                "orders.exhausted": "abort",
            }
        )
        | {"num.partitions": "3", "listeners": "x"}
    )
    url = "https://orders.internal:8443/outcome?of={token}&since={started_ms}"
    assert found == (
        ResolverSettings(
            "orders",
            ("order-*",),
            "http",
            {"url": url, "ca.file": str(ca_file), "bearer.file": str(bearer_file)},
            first_ms=0,
            interval_ms=1000,
            backoff=1.5,
            interval_max_ms=60_000,
            checks_max=3,
            timeout_ms=500,
            concurrency=2,
            exhausted=Exhausted.ABORT,
        ),
        ResolverSettings(
            "shop",
            ("shop-*", "till-?"),
            "sql",
            {"dsn.file": str(dsn_file), "claim": "session", "table": "shop.fencepost_prepared"},
        ),
        ResolverSettings("spark", ("sink-*",), "record", {"topic": "fencepost-sink-orders"}),
    )


@pytest.mark.parametrize("texts", [{}, {"resolvers": ""}, {"resolvers": " , "}])
def test_without_a_list_there_are_none(texts: dict[str, str]) -> None:
    assert resolver_settings(named(texts)) == ()


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        ({"orders.urll": "x"}, "orders.urll", "unknown setting of a resolver; did you mean 'url'?"),
        ({"orders.first": "1"}, "orders.first", "unknown setting of a resolver; did you mean 'first.ms'?"),
        ({"order.url": "x"}, "order.url", "fencepost.check.back.resolvers does not name order; did you mean orders?"),
        ({"shop.url": "x"}, "shop.url", "fencepost.check.back.resolvers does not name shop; it has orders"),
        ({"resolvers": "a b"}, "resolvers", "expected names of letters, digits, - and _; got 'a b'"),
        ({"resolvers": "orders,orders"}, "resolvers", "orders is listed twice"),
        ({"resolvers": "orders,resolvers"}, "resolvers", "a resolver cannot have the name resolvers"),
        ({"orders.type": "https"}, "orders.type", "expected http, sql, record; got 'https'"),
        ({"orders.type": None}, "orders.type", "expected http, sql, record; it is missing"),
        (
            {"orders.ids": None},
            "orders.ids",
            "is missing: globs of the transactional ids to ask about, such as order-*",
        ),
        ({"orders.ids": " ,"}, "orders.ids", "expected globs of transactional ids, such as order-*; got none"),
        ({"orders.url": None}, "orders.url", "is missing: a resolver of type http needs it"),
        ({"orders.url": ""}, "orders.url", "is missing: a resolver of type http needs it"),
        ({"orders.topic": "t"}, "orders.topic", "has no meaning for type http; remove it"),
        ({"orders.first.ms": "-1"}, "orders.first.ms", "expected whole number, 0 to 2147483647; got '-1'"),
        ({"orders.first.ms": "1e3"}, "orders.first.ms", "expected whole number, 0 to 2147483647; got '1e3'"),
        ({"orders.interval.ms": "0"}, "orders.interval.ms", "expected whole number, 1 to 2147483647; got '0'"),
        ({"orders.checks.max": "0"}, "orders.checks.max", "expected whole number, 1 to 2147483647; got '0'"),
        ({"orders.checks.max": "9" * 5000}, "orders.checks.max", "expected whole number, 1 to 2147483647"),
        ({"orders.timeout.ms": "600001"}, "orders.timeout.ms", "expected whole number, 1 to 600000; got '600001'"),
        ({"orders.concurrency": "1001"}, "orders.concurrency", "expected whole number, 1 to 1000; got '1001'"),
        ({"orders.backoff": "0.5"}, "orders.backoff", "expected number, 1 to 100; got '0.5'"),
        ({"orders.backoff": "nan"}, "orders.backoff", "expected number, 1 to 100; got 'nan'"),
        ({"orders.interval.max.ms": "100"}, "orders.interval.max.ms", "must not be less than interval.ms, 30000"),
        ({"orders.exhausted": "Park"}, "orders.exhausted", "expected park, abort or commit; got 'Park'"),
        ({"orders.ca.file": "/nowhere/ca"}, "orders.ca.file", "/nowhere/ca cannot be read (no such file or directory)"),
    ],
    ids=lambda value: next(iter(value.items())).__repr__()[:50] if isinstance(value, dict) else None,
)
def test_each_mistake_is_said_with_its_place_and_a_remedy(change: dict[str, str | None], name: str, said: str) -> None:
    texts = {key: text for key, text in {**ORDERS, **change}.items() if text is not None}
    found = problems(texts)
    assert found[name].startswith(said)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("orders.internal/{token}", "expected https://HOST/PATH with {token} in it"),
        ("ftp://orders.internal/{token}", "expected https://HOST/PATH with {token} in it"),
        ("https:///{token}", "expected https://HOST/PATH with {token} in it"),
        ("https://orders.internal:0/{token}", "expected https://HOST/PATH with {token} in it"),
        ("https://orders.internal:99999/{token}", "expected https://HOST/PATH with {token} in it"),
        ("https://[::1/{token}", "expected https://HOST/PATH with {token} in it"),
        ("https://örders.internal/{token}", "expected https://HOST/PATH with {token} in it, in ASCII"),
        ("https://orders.internal/a b/{token}", "expected no blanks; write %20"),
        ("https://user:secret@orders.internal/{token}", "a user and a password here would be shown in logs"),
        ("https://{token}.internal/", "{token} belongs into the path or the query: clients must not choose the host"),
        ("https://orders.internal/#{token}", "{token} belongs into the path or the query"),
        ("https://orders.internal/", "expected {token} in it: else the service cannot know which transaction"),
        ("https://orders.internal/{token}/{id}", "there is no {id}; there are {token}, {transactional_id}, {prod"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused(url: str, said: str) -> None:
    found = problems({**ORDERS, "orders.url": url})
    assert found["orders.url"].startswith(said)
    assert "secret" not in found["orders.url"]


def test_mistakes_of_a_database_are_said(tmp_path: Path) -> None:
    file = tmp_path / "shop.dsn"
    file.write_text("x")
    shop = {"resolvers": "shop", "shop.ids": "shop-*", "shop.type": "sql", "shop.dsn.file": str(file)}
    assert problems({**shop, "shop.dsn.file": str(tmp_path / "no")}) == {
        "shop.dsn.file": f"{tmp_path / 'no'} cannot be read (no such file or directory); "
        "correct the path, or its rights"
    }
    assert problems({**shop, "shop.claim": "row"}) == {"shop.claim": "expected outcome or session; got 'row'"}
    assert "expected a name such as" in problems({**shop, "shop.table": "a;drop table b"})["shop.table"]
    assert "expected {token} in it" in problems({**shop, "shop.key": "{transactional_id}"})["shop.key"]
    beside_query = problems({**shop, "shop.query": "SELECT 1", "shop.table": "t", "shop.claim": "outcome"})
    assert set(beside_query) == {"shop.table", "shop.claim"}
    assert "no meaning for sessions" in problems({**shop, "shop.claim": "session", "shop.key": "{token}"})["shop.key"]


def test_a_topic_has_a_topics_name() -> None:
    spark = {"resolvers": "spark", "spark.ids": "a-*", "spark.type": "record", "spark.topic": "a/b"}
    assert problems(spark) == {"spark.topic": "expected the name of a topic; got 'a/b'"}


def test_resolvers_that_could_both_answer_for_an_id_are_refused() -> None:
    other = {key.replace("orders", "shop"): text for key, text in ORDERS.items() if key != "resolvers"}
    found = problems({**ORDERS, **other, "resolvers": "orders,shop", "shop.ids": "shop-*,*-1"})
    assert found == {
        "shop.ids": "*-1 and order-* of resolver orders both match ids such as 'order-1'; let one resolver answer "
        "for an id"
    }


def test_all_mistakes_are_said_at_once() -> None:
    found = problems({**ORDERS, "orders.backoff": "x", "orders.nothing": "x", "orders.url": "x", "shop.ids": "x"})
    assert list(found) == ["orders.nothing", "shop.ids", "orders.backoff", "orders.url"]


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [
        ("https://orders.internal/{token}", False),
        ("http://127.0.0.1:8080/{token}", False),
        ("http://[::1]:8080/{token}", False),
        ("http://localhost/{token}", False),
        ("http://orders.internal/{token}", True),
        ("http://10.0.0.1/{token}", True),
        ("http://127.0.0.1.evil.example/{token}", True),
    ],
)
def test_a_service_without_tls_on_another_machine_is_warned_of(url: str, is_warned: bool) -> None:
    warnings = resolver_warnings(resolver_settings(named({**ORDERS, "orders.url": url})))
    assert len(warnings) == is_warned
    assert all(one.startswith("fencepost.check.back.orders.url: without TLS") for one in warnings)


@pytest.mark.parametrize("exhausted", ["abort", "commit"])
def test_a_guess_at_the_end_is_warned_of(exhausted: str) -> None:
    (warning,) = resolver_warnings(resolver_settings(named({**ORDERS, "orders.exhausted": exhausted})))
    assert warning.startswith(f"fencepost.check.back.orders.exhausted: {exhausted} guesses")
