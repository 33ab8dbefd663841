"""Several clusters in one console, with a role in each."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from fencepost import Broker
from fencepost.console.options import ClusterOptions, ConsoleOptions
from fencepost.console.roles import Role
from fencepost.console.web.console import Console, NoRoleError, error_page, sentence
from tests.console.running import RunningConsole, csrf_in, get_json, hidden_fields, text_of

NOWHERE = (("127.0.0.1", 1),)
ANYBODY = frozenset({"ANONYMOUS"})


def address_of(broker: Broker) -> tuple[tuple[str, int], ...]:
    host, port = broker.bootstrap_servers.split(":")
    return ((host, int(port)),)


@pytest.fixture(scope="module")
def console() -> Iterator[RunningConsole]:
    with Broker() as first, Broker() as second:
        first.produce("orders", "1")
        second.produce("payments", "1")
        clusters = (
            ClusterOptions(address_of(first), name="prod", roles={Role.VIEWER: ANYBODY}),
            ClusterOptions(address_of(second), name="test", roles={Role.OPERATOR: ANYBODY}),
            ClusterOptions(NOWHERE, name="gone"),
            ClusterOptions(address_of(second), name="closed", roles={Role.ADMIN: frozenset({"root"})}),
        )
        with RunningConsole(ConsoleOptions(NOWHERE, clusters=clusters)) as running:
            yield running


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.browser() as one:
        yield one


@pytest.mark.integration
def test_people_choose_a_cluster_and_see_their_role_in_each(browser: httpx.Client) -> None:
    choices = {one["name"]: one for one in get_json(browser, "/")["choices"]}
    assert {name: one["role"] for name, one in choices.items()} == {
        "prod": "viewer",
        "test": "operator",
        "gone": "",
        "closed": "",
    }
    assert choices["prod"]["state"] == "answers"
    assert "127.0.0.1:1" in choices["gone"]["state"]
    assert choices["closed"]["state"].endswith("has no role in the cluster closed: none of the roles names it")
    assert choices["test"]["address"] == "/c/test/"


@pytest.mark.integration
def test_an_address_without_a_cluster_leads_to_the_same_page_in_the_chosen_one(browser: httpx.Client) -> None:
    page = browser.get("/topics/orders?page=1").text
    assert 'href="/c/prod/topics/orders?page=1"' in page
    assert browser.get("/c/prod/topics/orders").status_code == 200


@pytest.mark.integration
def test_every_link_of_a_page_keeps_the_cluster(browser: httpx.Client) -> None:
    of_no_cluster = ("/static/", "/theme", "/clusters", "/log-out", "/c/prod/")
    for address in ("/", "/topics", "/topics/orders", "/topics/orders/messages", "/groups", "/settings", "/in-doubt"):
        page = browser.get(f"/c/prod{address}").text
        links = re.findall(r'(?:href|action)="(/[^"]*)"', page)
        assert len(links) > 10
        assert [one for one in links if not one.startswith(of_no_cluster)] == []


@pytest.mark.integration
def test_each_cluster_has_its_own_topics_and_one_that_is_down_holds_no_other(browser: httpx.Client) -> None:
    def names(cluster: str) -> list[str]:
        return [one["name"] for one in get_json(browser, f"/c/{cluster}/topics")["listing"]["rows"]]

    assert browser.get("/c/gone/topics").status_code == 502
    assert names("prod") == ["orders"]
    assert "payments" in names("test")
    assert "orders" not in names("test")
    assert browser.get("/c/none/topics").status_code == 404
    assert browser.get("/c/closed/topics").status_code == 403


@pytest.mark.integration
def test_pages_hide_changes_that_the_role_may_not_make_and_the_server_refuses_them(browser: httpx.Client) -> None:
    page = browser.get("/c/prod/topics").text
    assert "/change/" not in page
    page = browser.get("/c/test/topics").text
    assert 'action="/c/test/change/create-topic"' in page
    form = {"csrf": csrf_in(page), "name": "made"}
    refused = browser.post("/c/prod/change/create-topic", data=form)
    assert refused.status_code == 403
    assert "This needs the role operator, and you are viewer" in text_of(refused.text)
    assert "delete-topic" not in browser.get("/c/test/topics/payments").text
    refused = browser.post("/c/test/change/delete-topic", data=form | {"name": "payments", "typed_name": "payments"})
    assert "This needs the role admin, and you are operator" in text_of(refused.text)
    shown = hidden_fields(browser.post("/c/test/change/create-topic", data=form).text)
    made = browser.post("/c/test/change/create-topic", data=shown | {"reason": "needed", "typed_name": "made"})
    assert made.url.path == "/c/test/topics/made"
    assert browser.get("/c/test/topics/payments").status_code == 200


@pytest.mark.integration
def test_changes_are_refused_after_a_name_leads_to_another_cluster() -> None:
    with Broker() as broker:
        broker.produce("orders", "1")
        options = ConsoleOptions(address_of(broker), cluster_id="another-id")
        with RunningConsole(options) as console, console.browser() as browser:
            page = browser.get("/topics")
            assert "and it was another-id" in text_of(browser.get("/topics").text)
            form = {"csrf": csrf_in(page.text), "name": "orders", "typed_name": "orders"}
            refused = browser.post("/change/delete-topic", data=form)
            assert refused.status_code == 502
            assert "This is another cluster than before" in text_of(refused.text)
            assert browser.get("/topics/orders").status_code == 200


def test_the_addresses_of_one_cluster_work_with_its_name_and_without() -> None:
    with RunningConsole(ConsoleOptions(NOWHERE)) as console, console.browser() as browser:
        assert browser.get("/topics").status_code == 502
        assert browser.get("/c/cluster/topics").status_code == 502
        assert browser.get("/c/cluster2/topics").status_code == 404
        for name in ("..", "%2e%2e", "a%2Fb", "%00", '"><script>'):
            answer = browser.get(f"/c/{name}/topics")
            assert answer.status_code in (404, 502)
            assert "<script>" not in answer.text


def test_read_only_makes_everybody_a_viewer_and_an_unknown_person_has_no_role() -> None:
    console = Console(ConsoleOptions(NOWHERE, read_only=True, roles={Role.ADMIN: frozenset({"root"})}))
    assert console.role_in(console.only_cluster, frozenset({"root"}), "root") is Role.VIEWER
    with pytest.raises(NoRoleError, match="Zoë has no role in the cluster cluster"):
        console.role_in(console.only_cluster, frozenset({"Root", ""}), "Zoë")


def test_errors_have_pages_with_their_status() -> None:
    page = error_page(NoRoleError("you may not"))
    assert (page.status, page.data["error"]) == (403, "You may not.")
    assert sentence("why?") == "Why?"
