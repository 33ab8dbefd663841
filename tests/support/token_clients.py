"""Clients of a broker with SASL that come by a password, or by a delegation token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_alice="alice-secret";',
    "delegation.token.secret.key": "the secret key",
    "connection.failed.authentication.delay.ms": "1",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
}
"""Of a broker whose listener CLIENTS knows the user alice and gives delegation tokens."""


class TokenClients:
    """Runs commands of `fencepost` in this process, as alice or by a token.

    directory: for the files with their log-ins.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "client.properties"

    def as_alice(self, bootstrap: str, *arguments: str) -> Any:
        """What a command prints as JSON. Raises AssertionError if it fails."""
        login = f'{PLAIN} username="alice" password="alice-secret";'
        result = self._run(bootstrap, "PLAIN", login, *arguments, "--json")
        assert result.exit_code == 0, (bootstrap, arguments, result.output)
        return json.loads(result.output)

    def outcome(self, token: dict[str, str], bootstrap: str) -> str:
        """What becomes of a log-in with this token: "counts" or "refused", or else what the command prints."""
        login = f'{SCRAM} username="{token["token_id"]}" password="{token["hmac"]}" tokenauth="true";'
        result = self._run(bootstrap, "SCRAM-SHA-256", login, "topics", "list", "--json")
        if result.exit_code == 0:
            return "counts"
        return "refused" if "refused the log-in" in result.output else result.output

    def _run(self, bootstrap: str, mechanism: str, login: str, *arguments: str) -> Result:
        self._path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"
        )
        options = ("--bootstrap", bootstrap, "--command-config", str(self._path))
        return CliRunner().invoke(fencepost, [*arguments, *options])
