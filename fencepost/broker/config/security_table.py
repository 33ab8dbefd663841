"""Table of the settings for encryption and authentication; a part of `table.py`, whose first lines say how it works.

Most can be set for one listener, `listener.name.<listener>.<setting>`, and those of a SASL mechanism for that mechanism
on one listener, `listener.name.<listener>.<mechanism>.<setting>`. `Settings.for_listener` looks all of them up.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.broker.config.password import Password
from fencepost.broker.config.setting import (
    Scope,
    SettingType,
    any_of,
    at_least,
    declare,
    each_of,
    one_of,
    one_of_in_any_case,
)

BOOLEAN, STRING, INT, LONG, LIST, PASSWORD = (
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.INT,
    SettingType.LONG,
    SettingType.LIST,
    SettingType.PASSWORD,
)
LISTENER, MECHANISM = Scope.LISTENER, Scope.MECHANISM

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms that can be served."""
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("PEM", "PKCS12")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class EncryptionSettings:
    """Encryption (TLS)"""

    ssl_keystore_type: str = declare(
        STRING,
        "PEM",
        "The format of the broker's key and certificate. Kafka's default is JKS, which is not read: a line of "
        "`keytool` makes PKCS12 of it.",
        one_of_in_any_case(*STORE_TYPES),
        scope=LISTENER,
    )
    ssl_keystore_location: str = declare(
        STRING,
        "",
        "The file with the private key and the certificate of the broker, followed by the certificates between it and "
        "its authority.",
        scope=LISTENER,
    )
    ssl_keystore_password: Password | None = declare(
        PASSWORD, None, "The password of the file, for PKCS12.", scope=LISTENER
    )
    ssl_key_password: Password | None = declare(
        PASSWORD, None, "The password of the private key, if it is encrypted.", scope=LISTENER
    )
    ssl_keystore_key: Password | None = declare(
        PASSWORD, None, "The private key itself as PEM text, in place of a file.", scope=LISTENER
    )
    ssl_keystore_certificate_chain: Password | None = declare(
        PASSWORD, None, "The certificates themselves as PEM text, in place of a file.", scope=LISTENER
    )
    ssl_truststore_type: str = declare(
        STRING,
        "PEM",
        "The format of the trusted certificates.",
        one_of_in_any_case(*STORE_TYPES),
        scope=LISTENER,
    )
    ssl_truststore_location: str = declare(
        STRING, "", "The file with the certificates of the authorities whose certificates are accepted.", scope=LISTENER
    )
    ssl_truststore_password: Password | None = declare(
        PASSWORD, None, "The password of the file, for PKCS12.", scope=LISTENER
    )
    ssl_truststore_certificates: Password | None = declare(
        PASSWORD, None, "The trusted certificates themselves as PEM text, in place of a file.", scope=LISTENER
    )
    ssl_client_auth: str = declare(
        STRING,
        "none",
        "Whether clients show a certificate of their own. `requested`: they may do without.",
        one_of("none", "requested", "required"),
        scope=LISTENER,
    )
    ssl_enabled_protocols: tuple[str, ...] = declare(
        LIST, TLS_VERSIONS, "The versions of TLS that are spoken.", each_of(*TLS_VERSIONS), scope=LISTENER
    )
    ssl_protocol: str = declare(
        STRING,
        "TLSv1.3",
        "The newest version of TLS that is spoken, if `ssl.enabled.protocols` has it.",
        one_of_in_any_case("TLS", *TLS_VERSIONS),
        scope=LISTENER,
    )
    ssl_cipher_suites: tuple[str, ...] = declare(
        LIST,
        (),
        "The cipher suites that are accepted, by their IANA names, such as TLS_AES_256_GCM_SHA384. Unset: those of the "
        "OpenSSL that Python has.",
        scope=LISTENER,
    )
    ssl_principal_mapping_rules: str = declare(
        STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes its principal: rules `RULE:pattern/replacement/[LU]`, "
        "separated by commas; the first that matches is used. `DEFAULT` is the whole name.",
        scope=LISTENER,
    )
    ssl_endpoint_identification_algorithm: str = declare(
        STRING,
        "https",
        "As a client of another node: `https` compares its name with its certificate; empty does not.",
        one_of_in_any_case("https", ""),
        scope=LISTENER,
    )
    principal_builder_class: str = declare(
        STRING,
        DEFAULT_PRINCIPAL_BUILDER,
        "Accepted when it is Kafka's own, which does the same: classes of others cannot be loaded.",
        one_of(DEFAULT_PRINCIPAL_BUILDER),
        has_effect=False,
        scope=LISTENER,
    )
    security_inter_broker_protocol: str = declare(
        STRING,
        "PLAINTEXT",
        "The protocol between the nodes of a cluster: that of the listener which other nodes connect to.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    inter_broker_listener_name: str = declare(
        STRING,
        "",
        "The listener that other nodes of a cluster connect to, in place of `security.inter.broker.protocol`.",
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class AuthenticationSettings:
    """Authentication (SASL)"""

    sasl_enabled_mechanisms: tuple[str, ...] = declare(
        LIST,
        (),
        "The mechanisms by which clients may authenticate. A listener with SASL needs at least one. (Kafka's default "
        "is GSSAPI, which is not served.)",
        any_of(*MECHANISMS),
        scope=LISTENER,
    )
    sasl_mechanism_inter_broker_protocol: str = declare(
        STRING,
        "",
        "The mechanism by which this broker authenticates with the other nodes of a cluster. (Kafka's default is "
        "GSSAPI, which is not served.)",
        one_of("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    )
    sasl_jaas_config: Password | None = declare(
        PASSWORD,
        None,
        "The users of PLAIN, in Kafka's form: `org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="her password";`. With `username` and `password`, who this broker is to other nodes.',
        scope=MECHANISM,
    )
    fencepost_plain_users_file: str = declare(
        STRING,
        "",
        "A file with the users of PLAIN, one a line, with a hash in place of the password. `fencepost users` "
        "writes it.",
        scope=LISTENER,
    )
    connections_max_reauth_ms: int = declare(
        LONG,
        0,
        "How long a client that has authenticated is served before it has to do so again (KIP-368). 0: no bound.",
        at_least(0),
        scope=MECHANISM,
    )
    delegation_token_secret_key: Password | None = declare(
        PASSWORD,
        None,
        "The secret from which those of delegation tokens follow (KIP-48), the same on all nodes. Unset: there are no "
        "tokens. When it changes, no token that was issued before is accepted.",
    )
    delegation_token_max_lifetime_ms: int = declare(
        LONG,
        604_800_000,
        "How long a delegation token can be renewed, from its creation; a shorter time can be asked for.",
        at_least(1),
    )
    delegation_token_expiry_time_ms: int = declare(
        LONG, 86_400_000, "How long a delegation token is valid before it has to be renewed.", at_least(1)
    )
    delegation_token_expiry_check_interval_ms: int = declare(
        LONG,
        3_600_000,
        "How often expired delegation tokens are removed. They are not accepted meanwhile.",
        at_least(1),
    )
    sasl_server_max_receive_size: int = declare(
        INT, 524_288, "The largest request of a client that has not authenticated.", at_least(1024), scope=LISTENER
    )
    connection_failed_authentication_delay_ms: int = declare(
        INT, 100, "How long the answer to a failed authentication is held back.", at_least(0), scope=LISTENER
    )
    fencepost_authentication_timeout_ms: int = declare(
        INT,
        10_000,
        "How long a client may take to authenticate, the TLS handshake included, before its connection is closed.",
        at_least(1),
        scope=LISTENER,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = declare(
        STRING,
        "",
        "Where the keys are that sign tokens: an `https:` address or a `file:` (a JSON Web Key Set).",
        scope=MECHANISM,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = declare(
        LONG, 3_600_000, "How often these keys are read again.", at_least(1), scope=MECHANISM
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = declare(
        LONG, 100, "The first pause after the keys could not be read; it doubles.", at_least(1), scope=MECHANISM
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = declare(
        LONG, 10_000, "The longest pause after the keys could not be read.", at_least(1), scope=MECHANISM
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = declare(
        LIST, (), "Audiences (`aud`), of which a token must have one. Unset: any.", scope=MECHANISM
    )
    sasl_oauthbearer_expected_issuer: str = declare(
        STRING, "", "The issuer (`iss`) that a token must have. Unset: any.", scope=MECHANISM
    )
    sasl_oauthbearer_scope_claim_name: str = declare(
        STRING,
        "scope",
        "The claim of a token that holds its scope. No right follows from it, as in Kafka.",
        has_effect=False,
        scope=MECHANISM,
    )
    sasl_oauthbearer_sub_claim_name: str = declare(
        STRING, "sub", "The claim of a token that holds the name of the user.", scope=MECHANISM
    )
    sasl_oauthbearer_clock_skew_seconds: int = declare(
        INT, 30, "How far the clock of the issuer of tokens may be from this broker's.", at_least(0), scope=MECHANISM
    )
    fencepost_sasl_oauthbearer_unsecured: bool = declare(
        BOOLEAN,
        False,
        "Whether tokens without a signature (`alg: none`) are accepted, for tests. Only on listeners of this machine.",
        scope=MECHANISM,
    )
