"""The table of served APIs and the handlers that are declared for it: they agree, and all of them can be imported."""

from __future__ import annotations

import pkgutil
from dataclasses import replace

import pytest

import fencepost.broker.handlers
from fencepost.broker.requests.api import APIS, ServedApis
from fencepost.broker.requests.served import SERVED, served
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import FAMILIES


@pytest.mark.parametrize("key", SERVED, ids=lambda key: ApiKey(key).name)
def test_the_table_equals_the_declarations(key: int) -> None:
    row, api = SERVED[key], APIS[key]
    assert api.key == key
    assert api.handler.__module__ == f"fencepost.broker.handlers.{row.module}"
    assert api.name == FAMILIES[key][1]
    assert (api.minimum_version, api.maximum_version) == (row.minimum_version, row.maximum_version)
    assert (api.advertised_minimum, api.unstable_from) == (row.advertised_minimum, row.unstable_from)
    for with_unstable in (False, True):
        assert api.highest_version(with_unstable=with_unstable) == row.highest_version(with_unstable=with_unstable)


def test_the_table_is_in_the_order_of_the_keys() -> None:
    assert list(APIS) == list(SERVED) == sorted(SERVED)
    assert len(APIS) == len(SERVED)


def test_no_module_of_handlers_is_missing_in_the_table() -> None:
    modules = {module.name for module in pkgutil.iter_modules(fencepost.broker.handlers.__path__)}
    assert modules == {row.module for row in SERVED.values()}


def test_an_api_that_is_not_in_the_table_is_not_served() -> None:
    assert ApiKey.PRODUCE in APIS
    assert 4 not in APIS
    assert APIS.get(4) is None
    assert APIS.get(-1) is None


def test_an_api_is_declared_once_and_where_the_table_says() -> None:
    apis = ServedApis()
    produce = APIS[ApiKey.PRODUCE]
    apis.declare(produce)
    with pytest.raises(ValueError, match="API key 0 is declared twice: Produce and Produce"):
        apis.declare(produce)
    with pytest.raises(
        ValueError, match=r"API key 1 is declared in fencepost\.broker\.handlers\.produce, not in fetch"
    ):
        apis.declare(replace(produce, key=1))


def test_the_versions_of_a_row() -> None:
    assert served("module", "2-10") == ("module", 2, 10, 2, None, False)
    assert served("module", "4") == ("module", 4, 4, 4, None, False)
    assert served("module", "3-13", advertised_minimum=0, unstable_from=13) == ("module", 3, 13, 0, 13, False)
