"""What a secured broker is made of: listeners, certificates, users and tokens, and the rights that programs ask for.

The same settings start a Fencepost and an Apache Kafka. README.md beside this file says what programs find in their
environment.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.acls import DescribeAclsRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.scram_credentials import DescribeUserScramCredentialsRequest
from fencepost.soak.free_port import free_ports
from tests.differences.connection import Connection, Login
from tests.support.certificates import Authority

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
USERS = {ADMIN: ADMIN_PASSWORD, "alice": "alice-secret", "bob": "bob-secret"}
"""The users of PLAIN and of both kinds of SCRAM, with their passwords."""

PROTOCOLS = {
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "SHORT": "SASL_PLAINTEXT",
}
"""The listeners with their protocols. MUTUAL wants certificates of clients, EXPIRED has one that is over, and the
sessions of SHORT end after two seconds."""

SESSION_MS = 2_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
MODULES = "org.apache.kafka.common.security"
VALIDATOR = f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TIMEOUT_S = 30.0


@dataclass
class Security:
    """The secrets of one broker below `folder`, and the address of each of its listeners.

    is_kafka: an Apache Kafka is started with them.
    nodes: how many nodes the broker has, with ports that follow each other; the addresses are those of the first. A
        node comes to know of a change of ACLs a little after another has answered it, and so does Apache Kafka.
    """

    folder: Path
    is_kafka: bool
    nodes: int = 1

    def __post_init__(self) -> None:
        self.ports = {name: free_ports(self.nodes) for name in (*PROTOCOLS, *(["CONTROLLER"] if self.is_kafka else []))}
        authority = Authority(self.folder)
        Authority(self.folder, "other-authority")
        self._trusted = authority.path
        self._server = authority.server().both
        self._expired = authority.expired_server().both
        authority.client("alice")
        self._make_tokens()

    @property
    def bootstrap(self) -> str:
        return self.address("SASL_SSL")

    def address(self, listener: str, node: int = 1) -> str:
        return f"127.0.0.1:{self.ports[listener] + node - 1}"

    @property
    def environment(self) -> dict[str, str]:
        """What a program finds: SECURED_<LISTENER> is an address, SECURED_FILES the folder of all files."""
        return {f"SECURED_{name}": self.address(name) for name in PROTOCOLS} | {"SECURED_FILES": str(self.folder)}

    def settings_of(self, node: int = 1) -> dict[str, str]:
        """The settings of a node; processes of one broker have those of the first."""
        sasl_listeners = [name for name, protocol in PROTOCOLS.items() if protocol.startswith("SASL")]
        settings = {
            "listeners": ",".join(f"{name}://{self.address(name, node)}" for name in self.ports),
            "advertised.listeners": ",".join(f"{name}://{self.address(name, node)}" for name in PROTOCOLS),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/,DEFAULT",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": str(self._expired),
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": (self.folder / "jwks.json").as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN}",
            "auto.create.topics.enable": "false",
        }
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        itself = f'username="{ADMIN}" password="{ADMIN_PASSWORD}"'
        plain = f"{MODULES}.plain.PlainLoginModule required {itself} {users};"
        for listener in sasl_listeners:
            prefix = f"listener.name.{listener.lower()}"
            settings[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{MODULES}.scram.ScramLoginModule required;"
            settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = (
                f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            )
            if self.is_kafka:
                settings[f"{prefix}.oauthbearer.sasl.server.callback.handler.class"] = VALIDATOR
        if self.is_kafka or self.nodes > 1:
            settings |= {
                "inter.broker.listener.name": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            }
        if self.is_kafka:
            # One port for the controller, and a mechanism for the node that speaks with itself.
            settings["listener.security.protocol.map"] += ",CONTROLLER:SASL_PLAINTEXT"
            settings |= {
                "controller.quorum.voters": f"1@{self.address('CONTROLLER')}",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.controller.plain.sasl.jaas.config": plain,
            }
        return settings

    @property
    def java_options(self) -> list[str]:
        """What an Apache Kafka needs to read the keys of tokens from a file."""
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(self.folder / 'jwks.json').as_uri()}"]

    def config_file(self, node: int = 1) -> Path:
        """The settings of a node as a properties file that its owner alone may read."""
        path = self.folder / f"server-{node}.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={value}\n" for name, value in self.settings_of(node).items()))
        return path

    def add_users(self) -> None:
        """Store the users' SCRAM credentials."""
        from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

        # Apache Kafka takes one credential of a user in a request.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            how = ScramCredentialInfo(mechanism, 4096)
            wanted = [UserScramCredentialUpsertion(name, how, word.encode()) for name, word in USERS.items()]
            for stored in self._admin.alter_user_scram_credentials(wanted).values():
                stored.result(TIMEOUT_S)
        everybody = DescribeUserScramCredentialsRequest(None)
        self._until(lambda: self._each_node_says(everybody, 0, _has_all_users))
        if self.is_kafka:
            self._until(self._has_loaded_groups)

    def answer(self, asked: str) -> str:
        """Do what a program asks for; returns "done", or why that cannot be done.

        topic NAME                                    a topic with one partition
        allow User:NAME OPERATION KIND RESOURCE       an ACL; KIND is topic, group, transactional-id or cluster
        forbid User:NAME OPERATION KIND RESOURCE      without that ACL
        allowed User:NAME OPERATION KIND RESOURCE     wait until each node has that ACL, which somebody added
        """
        what, *words = asked.split()
        if what == "topic" and len(words) == 1:
            return self._create_topic(words[0])
        if what in {"allow", "forbid", "allowed"} and len(words) == 4:
            return self._right(what, *words)
        return f"nobody knows what {asked!r} means"

    def _create_topic(self, name: str) -> str:
        from confluent_kafka.admin import NewTopic

        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
        known = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        self._until(lambda: self._each_node_says(known, 9, lambda reply: reply.topics[0].error_code == ErrorCode.NONE))
        return "done"

    def _right(self, what: str, principal: str, operation: str, kind: str, name: str) -> str:
        from confluent_kafka.admin import (
            AclBinding,
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        kinds = {
            "topic": ResourceType.TOPIC,
            "group": ResourceType.GROUP,
            "transactional-id": ResourceType.TRANSACTIONAL_ID,
            "cluster": ResourceType.BROKER,
        }
        rule = (
            kinds[kind],
            name,
            ResourcePatternType.LITERAL,
            principal,
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        changed: dict[Any, Any] = {}
        if what == "allow":
            changed = self._admin.create_acls([AclBinding(*rule)])
        elif what == "forbid":
            changed = self._admin.delete_acls([AclBindingFilter(*rule)])
        for one in changed.values():
            one.result(TIMEOUT_S)
        resource, _, pattern, _, host, does, permission = rule
        stored = DescribeAclsRequest(resource.value, name, pattern.value, principal, host, does.value, permission.value)
        self._until(lambda: self._each_node_says(stored, 3, lambda reply: bool(reply.resources) == (what != "forbid")))
        return "done"

    def _each_node_says(self, request: Any, version: int, expected: Callable[[Any], bool]) -> bool:
        """Whether each node answers the administrator as expected. A client of a library would choose the node."""
        for node in range(1, self.nodes + 1):
            try:
                with Connection("127.0.0.1", self.ports["SASL_PLAINTEXT"] + node - 1) as connection:
                    connection.log_in(Login(ADMIN, ADMIN_PASSWORD))
                    connection.send(request, version)
                    if not expected(connection.receive(request.api_key, version)):
                        return False
            except ConnectionError:  # it is being started again
                return False
        return True

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError("the change did not take effect in time")
            time.sleep(0.02)

    def _has_loaded_groups(self) -> bool:
        """The coordinator of a young Apache Kafka makes its topic, and loads it, when the first client asks for it."""
        import confluent_kafka as ck

        consumer = ck.Consumer({**self.login_at(1), "group.id": "unused"})
        try:
            consumer.committed([ck.TopicPartition("unused", 0)], TIMEOUT_S)
        except ck.KafkaException:
            return False
        finally:
            consumer.close()
        return True

    @cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.login_at(1))

    def login_at(self, node: int) -> dict[str, Any]:
        """How the administrator connects to a node with librdkafka."""
        return {
            "bootstrap.servers": self.address("SASL_PLAINTEXT", node),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": ADMIN_PASSWORD,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }

    def _make_tokens(self) -> None:
        """alice.jwt is good; expired.jwt is over; forged.jwt is signed by another key."""
        import jwt
        from cryptography.hazmat.primitives.asymmetric import rsa

        ours, theirs = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
        public = jwt.algorithms.RSAAlgorithm.to_jwk(ours.public_key(), as_dict=True)
        keys = {"keys": [{**public, "kid": "key-1", "use": "sig", "alg": "RS256"}]}
        (self.folder / "jwks.json").write_text(json.dumps(keys))
        now = int(time.time())
        claims: Mapping[str, object] = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "scope": "kafka"}
        for name, key, issued in (
            ("alice", ours, now),
            ("expired", ours, now - 7_200),
            ("forged", theirs, now),
        ):
            whole = {**claims, "iat": issued, "exp": issued + 3_600}
            token = jwt.encode(whole, key, algorithm="RS256", headers={"kid": "key-1"})
            (self.folder / f"{name}.jwt").write_text(token)


def _has_all_users(reply: Any) -> bool:
    return {user.user for user in reply.results if len(user.credential_infos) == 2} >= USERS.keys()
