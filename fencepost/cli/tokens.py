"""`fencepost tokens`: create, list, renew and end delegation tokens (KIP-48), as Kafka's `kafka-delegation-tokens`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.cli.connection import bootstrap_option, check_replies, json_option
from fencepost.cli.output import Done, format_time, print_done, print_rows
from fencepost.cli.questions import ask, sure_option
from fencepost.cli.sending import brokers
from fencepost.protocol.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

if TYPE_CHECKING:
    from fencepost.client.blocking import BlockingCluster

DEFAULT: Final = -1
"""As a lifetime or period: the broker's setting. As the time until the end: at once."""
_COLUMNS: Final = ("token_id", "owner", "requester", "renewers", "issued", "expires", "latest_end")


@click.group()
def tokens() -> None:
    """Create, list, renew and end delegation tokens."""


def _principal(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise click.BadParameter(f"{text!r} is not TYPE:NAME, such as User:alice")
    return kind, name


def _principals(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> list[tuple[str, str] | None]:
    return [_principal(context, parameter, text) for text in texts]


@tokens.command()
@click.option(
    "--owner", metavar="TYPE:NAME", callback=_principal, help="User whom the token stands for; you if not given."
)
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    metavar="TYPE:NAME",
    callback=_principals,
    help="User who may renew and end the token, too; repeatable.",
)
@click.option(
    "--max-lifetime",
    type=click.IntRange(1),
    metavar="MS",
    help="Milliseconds after which no renewal helps; at most, and if not given, the broker's "
    "delegation.token.max.lifetime.ms.",
)
@bootstrap_option
@json_option
def create(
    owner: tuple[str, str] | None,
    renewers: Sequence[tuple[str, str]],
    max_lifetime: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a token, and print its id and its HMAC.

    They are the name and the password of a log-in by SCRAM with tokenauth="true". Who has the HMAC is the owner until
    the token ends.
    """
    kind, name = owner or (None, None)
    request = CreateDelegationTokenRequest(
        kind,
        name,
        [CreatableRenewers(*renewer) for renewer in renewers],
        DEFAULT if max_lifetime is None else max_lifetime,
    )
    with brokers(bootstrap) as cluster:
        made = cluster.send(request)
    check_replies(made)
    hmac = base64.b64encode(made.hmac).decode()
    fields = {
        "token_id": made.token_id,
        "hmac": hmac,
        "owner": f"{made.principal_type}:{made.principal_name}",
        "expires": format_time(made.expiry_timestamp_ms),
        "latest_end": format_time(made.max_timestamp_ms),
    }
    words = f"token id: {made.token_id}\nHMAC: {hmac}\nexpires: {fields['expires']}"
    if as_json:
        print_done(Done(f"{made.token_id}: created", fields), as_json=True)
    else:
        click.echo(words)


@tokens.command("list")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="TYPE:NAME",
    callback=_principals,
    help="Only tokens of this user; repeatable.",
)
@bootstrap_option
@json_option
def list_tokens(owners: Sequence[tuple[str, str]], bootstrap: str, as_json: bool) -> None:
    """Show the tokens that you may see.

    You see those that you own, renew or may describe. Their HMACs are not shown.
    """
    with brokers(bootstrap) as cluster:
        found = _described(cluster, owners)
    print_rows(_COLUMNS, [_row(token) for token in found], as_json=as_json, empty="no tokens")


@tokens.command()
@click.argument("token_id")
@click.option(
    "--period",
    type=click.IntRange(1),
    metavar="MS",
    help="Milliseconds from now until the token expires; the broker's delegation.token.expiry.time.ms if not given.",
)
@bootstrap_option
@json_option
def renew(token_id: str, period: int | None, bootstrap: str, as_json: bool) -> None:
    """Renew the token TOKEN_ID, at most until its latest end."""
    with brokers(bootstrap) as cluster:
        hmac = _hmac(cluster, token_id)
        reply = cluster.send(RenewDelegationTokenRequest(hmac, DEFAULT if period is None else period))
    check_replies(reply)
    _print_expiry(token_id, reply.expiry_timestamp_ms, as_json)


@tokens.command()
@click.argument("token_id")
@click.option(
    "--period",
    type=click.IntRange(1),
    metavar="MS",
    help="Milliseconds from now until the token expires; it is removed at once if not given.",
)
@sure_option("--force")
@bootstrap_option
@json_option
def expire(token_id: str, period: int | None, is_sure: bool, bootstrap: str, as_json: bool) -> None:
    """End the token TOKEN_ID: nobody can log in by it again. Connections that are open stay as they are."""
    if not is_sure:
        ask(f"End the token {token_id}?")
    with brokers(bootstrap) as cluster:
        hmac = _hmac(cluster, token_id)
        reply = cluster.send(ExpireDelegationTokenRequest(hmac, DEFAULT if period is None else period))
    check_replies(reply)
    if period is None:
        print_done(Done(f"{token_id}: removed", {"token_id": token_id, "removed": True}), as_json=as_json)
    else:
        _print_expiry(token_id, reply.expiry_timestamp_ms, as_json)


def _described(cluster: BlockingCluster, owners: Sequence[tuple[str, str]] = ()) -> Sequence[DescribedDelegationToken]:
    chosen = [DescribeDelegationTokenOwner(*owner) for owner in owners] or None
    reply = cluster.send(DescribeDelegationTokenRequest(chosen))
    check_replies(reply)
    found: list[DescribedDelegationToken] = reply.tokens
    return sorted(found, key=lambda token: (token.issue_timestamp, token.token_id))


def _hmac(cluster: BlockingCluster, token_id: str) -> bytes:
    """The secret of a token: requests name a token by it, and it has no place on a command line."""
    for token in _described(cluster):
        if token.token_id == token_id:
            return token.hmac
    raise click.ClickException(
        f"there is no token {token_id!r} that you may see; `fencepost tokens list` shows which there are"
    )


def _row(token: DescribedDelegationToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": f"{token.principal_type}:{token.principal_name}",
        "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
        "renewers": [f"{one.principal_type}:{one.principal_name}" for one in token.renewers],
        "issued": format_time(token.issue_timestamp),
        "expires": format_time(token.expiry_timestamp),
        "latest_end": format_time(token.max_timestamp),
    }


def _print_expiry(token_id: str, expires_ms: int, as_json: bool) -> None:
    expires = format_time(expires_ms)
    print_done(Done(f"{token_id}: expires {expires}", {"token_id": token_id, "expires": expires}), as_json=as_json)
