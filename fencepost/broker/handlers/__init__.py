"""Handlers of requests, one module per API family: the common ones are imported at startup, the others at first use."""

from fencepost.broker.handlers import (
    api_versions,
    consumer_groups,
    coordinators,
    fetch,
    group_membership,
    group_offsets,
    list_offsets,
    metadata,
    offset_fetch,
    produce,
    transactions,
)
from fencepost.broker.requests.api import APIS, CloseConnection, RequestContext, Services, SlicedResponse
from fencepost.broker.requests.routes import Api

__all__ = [
    "APIS",
    "Api",
    "CloseConnection",
    "RequestContext",
    "Services",
    "SlicedResponse",
    "api_versions",
    "consumer_groups",
    "coordinators",
    "fetch",
    "group_membership",
    "group_offsets",
    "list_offsets",
    "metadata",
    "offset_fetch",
    "produce",
    "transactions",
]
