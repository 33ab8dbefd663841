"""The table of served APIs and the declarations of handlers: they agree, and all of them can be imported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.broker.requests.api import APIS, ServedApis
from fencepost.broker.requests.served import SERVED, Served
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import FAMILIES

REMEDY = "run python -m scripts.api_tables"


@pytest.mark.parametrize("key", SERVED, ids=lambda key: ApiKey(key).name)
def test_the_table_equals_the_declarations(key: int) -> None:
    row, api = SERVED[key], APIS[key]
    assert api.module == f"fencepost.broker.handlers.{row.module}", REMEDY
    assert api.name == FAMILIES[key][1], REMEDY
    assert (api.minimum_version, api.maximum_version) == (row.minimum_version, row.maximum_version), REMEDY
    assert (api.advertised_minimum, api.unstable_from) == (row.advertised_minimum, row.unstable_from), REMEDY
    for with_unstable in (False, True):
        assert api.highest_version(with_unstable=with_unstable) == row.highest_version(with_unstable=with_unstable)


def test_the_table_is_in_the_order_of_the_keys() -> None:
    assert list(APIS) == list(SERVED) == sorted(SERVED)
    assert len(APIS) == len(SERVED)


def test_an_api_that_is_not_in_the_table_is_not_served() -> None:
    assert ApiKey.PRODUCE in APIS
    assert 4 not in APIS
    assert APIS.get(4) is None
    assert APIS.get(-1) is None


def test_an_api_is_declared_once() -> None:
    apis = ServedApis()
    produce = APIS[ApiKey.PRODUCE]
    apis.declare(produce)
    with pytest.raises(ValueError, match="API key 0 is declared twice: Produce and Produce"):
        apis.declare(replace(produce))
    assert apis.declared() == [produce]


def test_an_unstable_version_is_the_highest_only_where_it_is_switched_on() -> None:
    row = Served("module", 0, 6, 0, 6)
    assert (row.highest_version(with_unstable=False), row.highest_version(with_unstable=True)) == (5, 6)
