"""Modules of the request caches: each is found under its name, or the dispatcher would serve all without a cache."""

from __future__ import annotations

from importlib import import_module

import pytest

from fencepost.broker import request_cache
from fencepost.broker.request_cache.request_cache import CACHES
from fencepost.protocol.api_keys import ApiKey


@pytest.mark.parametrize("api_key", CACHES, ids=lambda key: ApiKey(key).name)
def test_the_cache_of_an_api_can_be_imported(api_key: ApiKey) -> None:
    module, name = CACHES[api_key]
    assert isinstance(getattr(import_module(f"{request_cache.__name__}.{module}"), name), type)
