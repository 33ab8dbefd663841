"""Completion of names in a shell: the broker that the command would ask is asked, for a second at the most.

If it does not answer, there is nothing to complete: a shell shows no errors. A thread asks, as resolving a name or a
server of tokens may take longer, and cannot be interrupted.

Names are chosen by clients, and bash puts them into the line as they are: one with `$(…)` would be run there. Those
with any character that a shell treats specially are left out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from fencepost.client.blocking import BlockingCluster

TIMEOUT_S: Final = 1.0
MOST_NAMES: Final = 500
"""A shell asks before it shows more than about a hundred, and a person reads fewer."""
PLAIN: Final = frozenset("._-+@%/,^")
"""Characters that no shell treats specially, beside letters and digits of all languages."""
_TOPIC: Final = 2
_RESOURCES: Final = {"topic": _TOPIC, "broker": 4, "logger": 8, "group": 32}

Ask = Callable[["BlockingCluster"], Iterable[str]]


def topic_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics whose names begin so; the internal ones only if asked for by their underscores."""
    return [
        name
        for name in _asked(context, parameter, incomplete, _topics)
        if incomplete.startswith("_") or not name.startswith("__")
    ]


def group_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The groups whose names begin so."""

    def ask(cluster: BlockingCluster) -> Iterable[str]:
        from fencepost.protocol.messages.group_admin import ListGroupsRequest

        return (found.group_id for reply in _of_all(cluster, ListGroupsRequest()) for found in reply.groups)

    return _asked(context, parameter, incomplete, ask)


def transactional_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The transactional ids that begin so."""

    def ask(cluster: BlockingCluster) -> Iterable[str]:
        from fencepost.protocol.messages.transaction_admin import ListTransactionsRequest

        replies = _of_all(cluster, ListTransactionsRequest())
        return (found.transactional_id for reply in replies for found in reply.transaction_states)

    return _asked(context, parameter, incomplete, ask)


def user_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The users with passwords whose names begin so."""

    def ask(cluster: BlockingCluster) -> Iterable[str]:
        from fencepost.protocol.messages.scram_credentials import DescribeUserScramCredentialsRequest

        return (found.user for found in cluster.send(DescribeUserScramCredentialsRequest(None)).results)

    return _asked(context, parameter, incomplete, ask)


def setting_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The settings that begin so, of the resource that the line names; of any topic if it names none that exists.

    For an option that takes NAME=VALUE, they end with the equals sign.
    """
    end = "" if parameter.name == "deleted" else "="
    given = _arguments(context)
    kind = _RESOURCES.get(given.get("kind", "topic"), _TOPIC)
    name = given.get("name", "")

    def ask(cluster: BlockingCluster) -> Iterable[str]:
        found = _settings(cluster, kind, name) if name else []
        if not found and kind == _TOPIC:
            other = next(iter(_topics(cluster)), None)
            found = [] if other is None else _settings(cluster, kind, other)
        return (f"{setting}{end}" for setting in found)

    return _asked(context, parameter, incomplete, ask)


def resource_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics, groups or brokers that begin so, by the kind that the line names."""
    kind = context.params.get("kind")
    if kind == "topic":
        return topic_names(context, parameter, incomplete)
    if kind == "group":
        return group_names(context, parameter, incomplete)
    return _asked(context, parameter, incomplete, lambda cluster: (str(node) for node in _view(cluster).nodes))


def _arguments(context: click.Context) -> dict[str, str]:
    """The arguments of the line. If its last word is an option without its value, click has not assigned them yet."""
    names = [parameter.name or "" for parameter in context.command.params if isinstance(parameter, click.Argument)]
    assigned = {name: context.params[name] for name in names if isinstance(context.params.get(name), str)}
    return {**dict(zip(names, context.args, strict=False)), **assigned}


def _view(cluster: BlockingCluster) -> Any:
    from fencepost.client.view import metadata_request, view_of

    return view_of(cluster.send(metadata_request(())))


def _topics(cluster: BlockingCluster) -> list[str]:
    from fencepost.client.view import metadata_request

    return [topic.name for topic in cluster.send(metadata_request(None)).topics if topic.name is not None]


def _of_all(cluster: BlockingCluster, request: Any) -> Iterable[Any]:
    """The replies of all brokers that answer."""
    from fencepost.client.errors import ClusterError
    from fencepost.client.plans import Address

    for node in _view(cluster).nodes.values():
        try:
            yield cluster.send(request, Address(node.host, node.port))
        except ClusterError:
            continue


def _settings(cluster: BlockingCluster, kind: int, name: str) -> list[str]:
    from fencepost.client.plans import Address
    from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

    address = None
    if name.isdecimal() and kind in (_RESOURCES["broker"], _RESOURCES["logger"]):
        node = _view(cluster).nodes[int(name)]
        address = Address(node.host, node.port)
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)])
    return [one.name for result in cluster.send(request, address).results for one in result.configs]


def is_plain(name: str) -> bool:
    """Whether a name can stand in a command line as it is."""
    letters = name.removesuffix("=")
    return letters[:1] not in ("", "-") and all(letter.isalnum() or letter in PLAIN for letter in letters)


def _asked(context: click.Context, parameter: click.Parameter, incomplete: str, ask: Ask) -> list[str]:
    """Ask the broker of the line. If the time is over, the names that came until then."""
    given = context.params.get(parameter.name or "")
    taken = set(given) if isinstance(given, tuple | list) else set()
    found: set[str] = set()

    def work() -> None:
        try:
            with context.scope(cleanup=False):
                _collect(context, ask, found, incomplete, taken)
        except Exception:  # noqa: BLE001  # any error message would be printed into the line that a person types
            return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return sorted(found.copy())[:MOST_NAMES]


def _collect(context: click.Context, ask: Ask, found: set[str], incomplete: str, taken: set[str]) -> None:
    from fencepost.cli.client_security import current_security, is_wrong
    from fencepost.cli.connection import CLIENT_ID
    from fencepost.client.blocking import BlockingCluster
    from fencepost.client.options import addresses_of

    if is_wrong(context):
        return
    cluster = BlockingCluster(addresses_of(context.params["bootstrap"]), current_security().own_options(CLIENT_ID))
    cluster.give_up_at_s = time.monotonic() + TIMEOUT_S
    try:
        for name in ask(cluster):
            if name.startswith(incomplete) and name not in taken and is_plain(name):
                found.add(name)
    finally:
        cluster.close()
