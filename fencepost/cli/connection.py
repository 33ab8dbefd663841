"""Common parts of the client commands: `--bootstrap`, kafka-python clients, and readable errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.client_security import current_security, security_options
from fencepost.cli.probe import NoBrokerError, NoLoginError, check_advertised, parse_address, probe_any
from fencepost.cli.profile_choice import choose_profile, profile_in_use, profile_option

Command = TypeVar("Command", bound=Callable[..., Any])
CLIENT_ID = "fencepost-cli"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
CONNECT_TIMEOUT_MS = 30_000
"""The broker has answered a moment before."""
READS_TRIED = 4
COORDINATORS_MOVE_S = 10.0
"""Time for which a coordinator that is not ready is asked again."""
COORDINATOR_PAUSE_S = 0.1


def bootstrap_option(command: Command) -> Command:
    """Add `--bootstrap HOST:PORT` with the names that other tools have for it, `--profile`, and the options for TLS and
    SASL, which `client_options` reads."""
    command = profile_option(security_options(command))
    return click.option(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        default=DEFAULT_BOOTSTRAP,
        show_default=f"that of the profile in use, or {DEFAULT_BOOTSTRAP}",
        envvar="FENCEPOST_BOOTSTRAP",
        show_envvar=True,
        callback=_check_bootstrap,
        help="Broker to connect to.",
    )(command)


def _check_bootstrap(context: click.Context, parameter: click.Parameter, text: str) -> str:
    found = choose_profile(context, context.get_parameter_source(parameter.name or ""))
    if found is not None:
        text = found.bootstrap
    try:
        check_addresses(text)
    except ValueError as error:
        raise click.BadParameter(f"of the profile {found.name!r}: {error}" if found else str(error)) from None
    return text


def check_addresses(text: str) -> str:
    """Return a list of `HOST:PORT`, with commas between them. Raises ValueError, which names the expected form."""
    for address in text.split(","):
        parse_address(address)
    return text


def json_option(command: Command) -> Command:
    """Add `--json`: machine-readable output, one document, or one object per line."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def client_options(bootstrap: str) -> dict[str, Any]:
    """Arguments of all kafka-python clients of the command line."""
    # The client's own log lines would hide the error message that matters.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return {
        "bootstrap_servers": bootstrap.split(","),
        "client_id": CLIENT_ID,
        "bootstrap_timeout_ms": CONNECT_TIMEOUT_MS,
        **current_security().client_options(),
    }


def coordinator_options(bootstrap: str) -> dict[str, Any]:
    """Arguments of a fencepost.two_phase.Coordinator beside the servers: it escapes a user's name by itself."""
    options = client_options(bootstrap)
    del options["bootstrap_servers"]
    return {**options, "sasl_plain_username": current_security().username}


@contextmanager
def admin_client(bootstrap: str) -> Iterator[Any]:
    """A connected KafkaAdminClient. Raises ClickException: no broker answers, or the broker refused."""
    with kafka_errors(bootstrap):
        from kafka.admin import KafkaAdminClient

        client = KafkaAdminClient(**client_options(bootstrap))
        try:
            yield _RepeatedReads(client)
        finally:
            client.close()


class _RepeatedReads:
    """A KafkaAdminClient whose reads, `describe_…` and `list_…`, are repeated if no connection can be made, and while a
    coordinator moves or reads its log.

    Metadata names a broker for some time after it has died. The client may choose it, and chooses others after that. Of
    a coordinator that is not ready it raises the error, as Kafka's own client does not.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not name.startswith(("describe_", "list_")):
            return attribute
        from kafka.errors import (
            CoordinatorLoadInProgressError,
            CoordinatorNotAvailableError,
            KafkaConnectionError,
            NotCoordinatorError,
        )

        # Apache Kafka has no coordinator while it creates the topic of the first group's offsets.
        not_ready = CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError

        def repeated(*arguments: Any, **options: Any) -> Any:
            lost = 0
            deadline_s = time.monotonic() + COORDINATORS_MOVE_S
            while True:
                try:
                    return attribute(*arguments, **options)
                except KafkaConnectionError:
                    lost += 1
                    if lost >= READS_TRIED:
                        raise
                except not_ready:
                    if time.monotonic() > deadline_s:
                        raise
                    time.sleep(COORDINATOR_PAUSE_S)

        return repeated


@contextmanager
def kafka_errors(bootstrap: str) -> Iterator[None]:
    """Turn kafka-python's exceptions into one line with the problem and the remedy.

    Probes the broker first: the client would retry for seconds, and not report the reason.
    """
    security = current_security()
    try:
        probe_any(bootstrap, security=security)
    except NoLoginError as error:
        raise click.ClickException(f"{bootstrap} does not serve this client: {error}") from None
    except NoBrokerError as error:
        raise click.ClickException(f"no broker answers at {bootstrap}: {error}{_advice(bootstrap, error)}") from None
    try:
        check_advertised(bootstrap, security=security)
    except NoLoginError as error:
        raise click.ClickException(f"{bootstrap} does not serve this client: {error}") from None
    except NoBrokerError as error:
        raise click.ClickException(
            f"{bootstrap} answers, but sends clients to an address where this machine finds no broker: {error}. "
            "Start the broker with an advertised.listeners that clients can reach"
        ) from None
    try:
        from kafka.errors import BrokerResponseError, KafkaConnectionError, KafkaError, KafkaTimeoutError
    except ModuleNotFoundError:
        # As in the image of the broker alone.
        raise click.ClickException(
            "kafka-python is not installed here, and this command needs it; run it where "
            "all of Fencepost is installed, with --bootstrap"
        ) from None
    from fencepost.client.errors import ClusterError

    try:
        yield
    except ClusterError as error:
        raise click.ClickException(printable(str(error))) from None
    except (KafkaConnectionError, KafkaTimeoutError) as error:
        raise click.ClickException(
            f"{bootstrap} stopped answering, or sends clients to an address that they cannot reach "
            f"(advertised.listeners): {error}"
        ) from error
    except BrokerResponseError as error:
        raise click.ClickException(describe_error(error)) from error
    except (KafkaError, ValueError) as error:
        raise click.ClickException(str(error) or type(error).__name__) from error


def _advice(bootstrap: str, error: NoBrokerError) -> str:
    if "--command-config" in str(error):
        return ""
    used = profile_in_use()
    if used is not None and used.is_its_address:
        return f". The address is that of the profile {used.name!r}; --profile or --bootstrap name another"
    start = f"`fencepost serve --listener {bootstrap.split(',')[0]} --data-dir DIRECTORY`"
    return f". Start one with {start}, or name another with --bootstrap"


def describe_error(error: Any) -> str:
    """`the broker refused: TOPIC_ALREADY_EXISTS (36): …`, from an instance or a class of kafka.errors."""
    detail = str(error.args[0]) if getattr(error, "args", None) else ""
    return refusal(error, detail if detail != "None" else "")


def refusal(error: Any, detail: str | None) -> str:
    """Kafka's name and number of an error of kafka.errors, with the broker's message or, if there is none, Kafka's."""
    name = getattr(error, "message", None) or getattr(error, "__name__", type(error).__name__)
    words = printable(detail or getattr(error, "description", None) or "")
    text = f"the broker refused: {name} ({getattr(error, 'errno', '?')})"
    return f"{text}: {words}" if words else text


def check_results(results: Sequence[Mapping[str, Any]]) -> None:
    """Raise ClickException for the first result of a reply whose `error_code` is not 0, with its `error_message`."""
    from kafka.errors import for_code

    for result in results:
        if result["error_code"]:
            raise click.ClickException(refusal(for_code(result["error_code"]), result.get("error_message")))


def describe_topic(admin: Any, name: str) -> dict[str, Any]:
    """Describe a topic. Raises ClickException if it does not exist."""
    found = admin.describe_topics([name])
    if not found or found[0]["error_code"]:
        no_such("topic", name, "topics")
    description: dict[str, Any] = found[0]
    return description


def check_replies(*replies: Any) -> None:
    """Raise ClickException for the first reply, or part of one, that has an error."""
    from kafka.errors import for_code

    for reply in replies:
        if reply.error_code:
            raise click.ClickException(refusal(for_code(reply.error_code), getattr(reply, "error_message", None)))


def no_such(kind: str, name: str, command: str) -> NoReturn:
    """Raise ClickException: this name does not exist, and the command that lists those that do."""
    raise click.ClickException(no_such_text(kind, name, command))


def no_such_text(kind: str, name: str, command: str) -> str:
    return f"there is no {kind} {name!r}; `fencepost {command} list` shows which there are"


def parse_settings(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`("a=1", "b=2")` as a dictionary. Raises BadParameter, which names the option and the pair."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        settings[name.strip()] = value.strip()
    return settings
