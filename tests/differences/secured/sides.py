"""How the two brokers are secured: users, passwords and settings, the same on both sides.

Users log in by SASL PLAIN; one listener, StandardAuthorizer, one super user. SCRAM-SHA-256 has sessions of
SHORT_SESSION_MS, so that they end, and are renewed, within a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.differences.connection import Login

PROTOCOL: Final = "SASL_PLAINTEXT"
ADMIN: Final = Login("admin", "admin-secret")
ALICE: Final = Login("alice", "alice-secret")
BOB: Final = Login("bob", "bob-secret")
CAROL: Final = Login("carol", "carol-secret")
USERS: Final = (ALICE, BOB, CAROL)
SHORT_SESSION_MS: Final = 3_000

PLAIN_JAAS: Final = " ".join(
    [
        "org.apache.kafka.common.security.plain.PlainLoginModule required",
        f'username="{ADMIN.user}" password="{ADMIN.password}"',
        *(f'user_{login.user}="{login.password}"' for login in (ADMIN, *USERS)),
    ]
)

SECURITY: Final[Mapping[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_JAAS};",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": str(SHORT_SESSION_MS),
    "connection.failed.authentication.delay.ms": "0",
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}

SECURED_KAFKA: Final[Mapping[str, str]] = {
    **SECURITY,
    # The node speaks to its own controller without authentication; clients cannot reach that listener as anybody else.
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
SECURED_FENCEPOST: Final[Mapping[str, str]] = {**SECURITY, "super.users": "User:admin"}
