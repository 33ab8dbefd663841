"""Settings of one node of a broker of several processes: its id, directory and ports, from those of the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fencepost.broker.cluster.processes.node_directories import node_directory
from fencepost.broker.config import Settings, parse_listeners
from fencepost.broker.config.listeners import Endpoint, parse_http_listener
from fencepost.broker.network.server import StartError

LAST_PORT = 65_535


def settings_of_node(settings: Settings, data_directory: str, index: int) -> Settings:
    """The settings of the node with this index, from 0: ports follow each other, and 0 stays 0. Raises StartError."""
    listeners = parse_listeners(settings)
    http = parse_http_listener(settings)
    http_text = settings.fencepost_http_listener
    if http is not None and http.port and http_text:
        scheme, separator, _ = http_text.rpartition("://")
        address = str(Endpoint("", http.host, _port(http.port, index))).removeprefix("://")
        http_text = f"{scheme}{separator}{address}"
    node_id = settings.node_id + index
    return dataclasses.replace(
        settings,
        node_id=node_id,
        log_dirs=node_directory(data_directory, node_id),
        listeners=tuple(str(Endpoint(each.name, each.host, _port(each.port, index))) for each in listeners),
        advertised_listeners=tuple(
            str(each.advertised._replace(port=_port(each.advertised.port, index)))
            for each in listeners
            if each.advertised is not None
        ),
        fencepost_http_listener=http_text,
    )


def _port(port: int, index: int) -> int:
    if port and port + index > LAST_PORT:
        raise StartError(
            f"there is no port {port + index}; the ports of the processes follow each other from {port} on"
        )
    return port + index if port else 0


def check_ports(settings: Settings, count: int) -> None:
    """Check that the ports of the processes do not meet. Raises StartError."""
    listeners = [*parse_listeners(settings)]
    http = parse_http_listener(settings)
    taken: dict[int, str] = {}
    for listener in [*listeners, *([http] if http is not None else [])]:
        for port in range(listener.port, listener.port + count) if listener.port else ():
            other = taken.setdefault(port, listener.name)
            if other != listener.name:
                raise StartError(
                    f"{count} processes take {count} ports of each listener, and {other} and {listener.name} would "
                    f"both have {port}; choose ports that are {count} apart"
                )


def names(settings: Sequence[Settings]) -> str:
    """Ids of nodes, for people."""
    return ", ".join(str(each.node_id) for each in settings)
