"""What every hands-on command shares: `--bootstrap`, kafka-python clients, and errors in a person's words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
CLIENT_ID = "fencepost-cli"
CONNECT_TIMEOUT_MS = 5_000


def bootstrap_option(command: Command) -> Command:
    """Add `--bootstrap HOST:PORT`, also read from FENCEPOST_BOOTSTRAP."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        default="127.0.0.1:9092",
        show_default=True,
        envvar="FENCEPOST_BOOTSTRAP",
        help="Broker to connect to.",
    )(command)


def json_option(command: Command) -> Command:
    """Add `--json`: machine-readable output, one document or one object a line."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def client_options(bootstrap: str) -> dict[str, Any]:
    """Arguments that every kafka-python client of the command line is made with."""
    # The client's own log lines would stand between a person and the one error message that matters.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return {"bootstrap_servers": bootstrap, "client_id": CLIENT_ID, "bootstrap_timeout_ms": CONNECT_TIMEOUT_MS}


@contextmanager
def admin_client(bootstrap: str) -> Iterator[Any]:
    """A connected KafkaAdminClient. Raises ClickException: nobody answers there, or the broker refused."""
    from kafka.admin import KafkaAdminClient

    with kafka_errors(bootstrap):
        client = KafkaAdminClient(**client_options(bootstrap))
        try:
            yield client
        finally:
            client.close()


@contextmanager
def kafka_errors(bootstrap: str) -> Iterator[None]:
    """Turn kafka-python's exceptions into one line that says what was wrong and what to do."""
    from kafka.errors import (
        BrokerResponseError,
        KafkaConnectionError,
        KafkaError,
        KafkaTimeoutError,
    )

    try:
        yield
    except (KafkaConnectionError, OSError) as error:
        raise _nobody_answers(bootstrap) from error
    except KafkaTimeoutError as error:
        if "bootstrap" in str(error).lower():
            raise _nobody_answers(bootstrap) from error
        raise click.ClickException(f"{bootstrap} did not answer in time: {error}") from error
    except BrokerResponseError as error:
        raise click.ClickException(f"the broker refused: {describe_error(error)}") from error
    except (KafkaError, ValueError) as error:
        raise click.ClickException(str(error) or type(error).__name__) from error


def _nobody_answers(bootstrap: str) -> click.ClickException:
    return click.ClickException(
        f"no broker answers at {bootstrap}: start one with "
        f"`fencepost serve --listener {bootstrap} --data-dir DIR`, or name another with --bootstrap"
    )


def describe_error(error: Any) -> str:
    """`TOPIC_ALREADY_EXISTS (36): Topic 'a' already exists.`, from an instance or a class of kafka.errors."""
    name = getattr(error, "message", "") or type(error).__name__
    detail = str(error.args[0]) if getattr(error, "args", None) else ""
    text = f"{name} ({getattr(error, 'errno', '?')})"
    return f"{text}: {detail}" if detail and detail != "None" else text


def parse_settings(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`("a=1", "b=2")` as a dictionary. Raises BadParameter naming the option and the pair."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        settings[name.strip()] = value.strip()
    return settings
