"""The service: its orders are on both sides, and a lost reply is mended."""

import sqlite3

import pytest
from order_service import take_orders


def orders(fencepost, database):
    connection = sqlite3.connect(database)
    rows = [name for (name,) in connection.execute("SELECT name FROM orders ORDER BY name")]
    connection.close()
    return rows, sorted(record.value.decode() for record in fencepost.records("orders"))


def test_each_order_is_a_row_and_a_record(fencepost, tmp_path):
    fencepost.topic("orders")
    take_orders(fencepost.bootstrap_servers, tmp_path / "db.sqlite", ["tea", "milk"])
    assert orders(fencepost, tmp_path / "db.sqlite") == (["milk", "tea"], ["milk", "tea"])


def test_an_order_that_the_database_refuses_is_no_record(fencepost, tmp_path):
    fencepost.topic("orders")
    with pytest.raises(sqlite3.IntegrityError):
        take_orders(fencepost.bootstrap_servers, tmp_path / "db.sqlite", ["tea", "tea"])
    assert orders(fencepost, tmp_path / "db.sqlite") == (["tea"], ["tea"])


def test_a_lost_reply_to_the_commit_loses_and_doubles_nothing(fencepost, tmp_path):
    fencepost.topic("orders")
    fault = fencepost.disconnect("EndTxn", count=1)
    take_orders(fencepost.bootstrap_servers, tmp_path / "db.sqlite", ["tea"])
    assert fault.fired == 1
    assert orders(fencepost, tmp_path / "db.sqlite") == (["tea"], ["tea"])
