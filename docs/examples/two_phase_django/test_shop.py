"""The shop: an order is a row exactly if its record is there, from any thread, and not inside atomic()."""

import os
import threading

import django
import pytest

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, connections, transaction  # noqa: E402
from shop.models import Line, Order  # noqa: E402
from shop.orders import Orders  # noqa: E402

from fencepost.two_phase import MisuseError  # noqa: E402


@pytest.fixture
def orders(fencepost, tmp_path):
    connection.settings_dict["NAME"] = tmp_path / "shop.sqlite"
    call_command("migrate", verbosity=0)
    fencepost.topic("orders")
    made = Orders(fencepost.bootstrap_servers, "shop-1")
    yield made
    made.close()
    connections.close_all()


def on_both_sides(fencepost):
    rows = sorted(Order.objects.values_list("name", flat=True))
    return rows, sorted(record.value.decode() for record in fencepost.records("orders"))


def test_an_order_and_its_lines_are_there_with_its_record(fencepost, orders):
    orders.place("tea", ["green", "", "black"])
    assert on_both_sides(fencepost) == (["tea"], ["tea"])
    assert sorted(Line.objects.values_list("article", flat=True)) == ["black", "green"]


def test_an_order_that_the_database_refuses_is_no_record(fencepost, orders):
    orders.place("tea")
    with pytest.raises(IntegrityError):
        orders.place("tea")
    orders.place("milk")
    assert on_both_sides(fencepost) == (["milk", "tea"], ["milk", "tea"])


def test_threads_take_turns_each_with_its_own_connection(fencepost, orders):
    def place(name):
        orders.place(name)
        connections.close_all()

    threads = [threading.Thread(target=place, args=(f"order-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [f"order-{number}" for number in range(8)]
    assert on_both_sides(fencepost) == (names, names)


def test_an_order_inside_atomic_is_refused_with_what_to_do(fencepost, orders):
    with transaction.atomic(), pytest.raises(MisuseError, match="ATOMIC_REQUESTS"):
        orders.place("tea")
    orders.place("milk")
    assert on_both_sides(fencepost) == (["milk"], ["milk"])


def test_a_broker_that_is_away_at_the_commit_loses_and_doubles_nothing(fencepost, orders):
    fault = fencepost.disconnect("EndTxn", count=1)
    orders.place("tea")
    assert fault.fired == 1
    orders.place("milk")
    assert on_both_sides(fencepost) == (["milk", "tea"], ["milk", "tea"])
