"""`fencepost apis`: the APIs, their versions and the features that the brokers of any cluster serve."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.client_security import ClientSecurity, current_security
from fencepost.cli.connection import bootstrap_option, json_option
from fencepost.cli.output import print_rows
from fencepost.cli.probe import NoBrokerError, NoLoginError, advertised_brokers, parse_address, served_apis
from fencepost.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from fencepost.protocol.messages.api_versions import ApiVersionsResponse

Versions = tuple[int, int]

REMOVED: Final[Mapping[int, str]] = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown"}
"""Of brokers with ZooKeeper, before Kafka 4.0."""
ASKED_AT_ONCE: Final = 16
SHOWN_BROKERS: Final = 5


class Asked(NamedTuple):
    """A broker and its answer. broker: its node id; None if it did not tell. error: why there is no answer."""

    broker: int | None
    address: str
    reply: ApiVersionsResponse | None
    error: str | None = None


@click.command()
@bootstrap_option
@json_option
def apis(bootstrap: str, as_json: bool) -> None:
    """Show the APIs, versions and features that brokers serve.

    All brokers of the cluster are asked, and differences between them are named. It works with brokers of any Kafka
    since 0.10, and without a log-in with the broker of --bootstrap alone. An API that is not known here has no name.
    The exit code is 1 if a broker does not answer.
    """
    security = current_security()
    brokers = _asked(bootstrap, security)
    apis_by_broker = [
        {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys} for reply in _replies(brokers)
    ]
    answered = [one.broker for one in brokers if one.reply is not None]
    api_rows = [
        {"key": key, "name": api_name(key), "versions": grouped([found.get(key) for found in apis_by_broker], answered)}
        for key in sorted(set().union(*apis_by_broker))
    ]
    feature_rows = _feature_rows(brokers, answered)
    if as_json:
        _print_json(bootstrap, brokers, api_rows, feature_rows)
    else:
        _print_tables(brokers, api_rows, feature_rows)
    silent = [f"{_name(one)} ({one.error})" for one in brokers if one.reply is None]
    if silent:
        raise click.ClickException(f"{len(silent)} of {len(brokers)} brokers did not answer: {', '.join(silent)}")


def _asked(bootstrap: str, security: ClientSecurity) -> list[Asked]:
    """Every broker that the first one that answers names. Raises ClickException if none answers."""
    reasons = []
    for address in bootstrap.split(","):
        host, port = parse_address(address)
        try:
            reply = served_apis(host, port, security=security)
        except NoBrokerError as error:
            reasons.append(str(error))
            continue
        try:
            named = advertised_brokers(host, port, security=security)
        except NoLoginError as error:
            click.echo(f"only the broker of {address} is shown: {error}", err=True)
            named = []
        if not named:
            return [Asked(None, address, reply)]
        return _ask_all([(one.node_id, one.host, one.port) for one in named], security)
    raise click.ClickException(f"no broker serves at {bootstrap}: {'; '.join(dict.fromkeys(reasons))}")


def _ask_all(named: Iterable[tuple[int, str, int]], security: ClientSecurity) -> list[Asked]:
    from concurrent.futures import ThreadPoolExecutor

    def ask(one: tuple[int, str, int]) -> Asked:
        broker, host, port = one
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            return Asked(broker, address, served_apis(host, port, security=security))
        except NoBrokerError as error:
            return Asked(broker, address, None, str(error))

    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        return list(threads.map(ask, sorted(named)))


def _replies(brokers: Sequence[Asked]) -> list[ApiVersionsResponse]:
    return [one.reply for one in brokers if one.reply is not None]


def api_name(key: int) -> str | None:
    """Kafka's name of an API; None for one that is not known here."""
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return REMOVED.get(key)


def grouped(found: Sequence[Versions | None], brokers: Sequence[int | None]) -> list[dict[str, Any]]:
    """The ranges of versions, each with the brokers that serve it: one if all agree. A broker without has null."""
    by_range: dict[Versions | None, list[int | None]] = {}
    for versions, broker in zip(found, brokers, strict=True):
        by_range.setdefault(versions, []).append(broker)
    return [
        {
            "min_version": None if versions is None else versions[0],
            "max_version": None if versions is None else versions[1],
            "brokers": names,
        }
        for versions, names in by_range.items()
    ]


def _feature_rows(brokers: Sequence[Asked], answered: Sequence[int | None]) -> list[dict[str, Any]]:
    replies = _replies(brokers)
    supported: list[dict[str, Versions]] = [
        {one.name: (one.min_version, one.max_version) for one in reply.supported_features} for reply in replies
    ]
    finalized: list[dict[str, Versions]] = [
        {one.name: (one.min_version_level, one.max_version_level) for one in reply.finalized_features}
        for reply in replies
    ]
    return [
        {
            "name": name,
            "supported": grouped([found.get(name) for found in supported], answered),
            "finalized": grouped([found.get(name) for found in finalized], answered),
        }
        for name in sorted(set().union(*supported, *finalized))
    ]


def _print_json(
    bootstrap: str,
    brokers: Sequence[Asked],
    api_rows: Sequence[Mapping[str, Any]],
    feature_rows: Sequence[Mapping[str, Any]],
) -> None:
    epochs = [reply.finalized_features_epoch for reply in _replies(brokers)]
    document = {
        "bootstrap": bootstrap,
        "brokers": [_broker_row(one) for one in brokers],
        "apis": api_rows,
        "features": feature_rows,
        "finalized_features_epoch": max(epochs) if epochs and max(epochs) >= 0 else None,
    }
    click.echo(json.dumps(document, indent=2))


def _print_tables(
    brokers: Sequence[Asked], api_rows: Sequence[Mapping[str, Any]], feature_rows: Sequence[Mapping[str, Any]]
) -> None:
    columns = ["broker", "address", "apis"] + (["error"] if any(one.error for one in brokers) else [])
    print_rows(columns, [_broker_row(one) for one in brokers], as_json=False)
    click.echo()
    shown = [{**row, "name": row["name"] or "(unknown)", "versions": _in_words(row["versions"])} for row in api_rows]
    print_rows(("key", "name", "versions"), shown, as_json=False, empty="no APIs")
    click.echo()
    features = [
        {"feature": row["name"], "finalized": _in_words(row["finalized"]), "supported": _in_words(row["supported"])}
        for row in feature_rows
    ]
    print_rows(("feature", "finalized", "supported"), features, as_json=False, empty="no features")


def _broker_row(one: Asked) -> dict[str, Any]:
    count = None if one.reply is None else len(one.reply.api_keys)
    return {"broker": one.broker, "address": one.address, "apis": count, "error": one.error}


def _name(one: Asked) -> str:
    return printable(one.address if one.broker is None else f"broker {one.broker} at {one.address}")


def _in_words(groups: Sequence[Mapping[str, Any]]) -> str:
    if len(groups) == 1:
        return _range(groups[0])
    return ", ".join(f"{_range(group)} ({_brokers(group['brokers'])})" for group in groups)


def _range(group: Mapping[str, Any]) -> str:
    lowest, highest = group["min_version"], group["max_version"]
    if lowest is None:
        return "none"
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def _brokers(names: Sequence[int]) -> str:
    more = len(names) - SHOWN_BROKERS
    shown = ", ".join(map(str, names[:SHOWN_BROKERS])) + (f" and {more} more" if more > 0 else "")
    return f"broker {shown}" if len(names) == 1 else f"brokers {shown}"
