"""The console's configuration in a file: all that it may have, and errors that name the key and the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost
from fencepost.cli.console_file import read_config
from fencepost.console.options import OptionError
from fencepost.console.roles import Role
from tests.support.source_trees import ROOT

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WHOLE = """
[console]
listen = "0.0.0.0:8443"
names = ["Console.Example"]
https = true
hsts = false
idle_minutes = 15
session_hours = 9.5
audit_log = "audit.jsonl"

[oidc]
issuer = "https://login.example/realms/main/"
client_id = "fencepost"
client_secret_file = "secret"
console_url = "https://console.example/"
claim = "realm_access.roles"
name_claim = "email"
scopes = ["openid", "email"]
clock_skew_seconds = 30

[roles]
viewer = ["staff"]
admin = ["kafka-admins"]

[clusters.prod]
bootstrap = "a.example:9092,b.example:9092"
cluster_id = "abc"
client_config = "prod.properties"
broker_http = "http://a.example:9644"
broker_http_token_file = "secret"

[clusters.prod.users]
admin = "admin.properties"

[clusters.test]
bootstrap = "127.0.0.1:9092"
read_only = true

[clusters.test.roles]
operator = ["staff"]

[clusters.open]
bootstrap = "127.0.0.1:9093"
pass_token = true
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("not-known\n")
    for name in ("prod", "admin"):
        login = f'sasl.jaas.config={PLAIN} required username="{name}" password="p";'
        text = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{login}\n"
        (tmp_path / f"{name}.properties").write_text(text)
    path = tmp_path / "console.toml"
    path.write_text(WHOLE)
    return path


def test_a_file_has_the_server_the_provider_the_roles_and_the_clusters(config: Path) -> None:
    options = read_config(config)
    assert (options.listen_host, options.listen_port) == ("0.0.0.0", 8443)
    assert options.names == {"console.example"}
    assert (options.idle_s, options.lifetime_s, options.is_https, options.has_hsts) == (900, 34_200, True, False)
    assert options.oidc is not None
    assert (options.oidc.issuer, options.oidc.url) == ("https://login.example/realms/main", "https://console.example")
    assert (options.oidc.client_secret, options.oidc.skew_s) == ("not-known", 30)
    assert "not-known" not in repr(options)
    prod, test, opened = options.clusters
    assert prod.bootstrap == (("a.example", 9092), ("b.example", 9092))
    assert prod.roles == {
        Role.VIEWER: frozenset({"staff"}),
        Role.OPERATOR: frozenset(),
        Role.ADMIN: frozenset({"kafka-admins"}),
    }
    users = {role: login.credentials.user for role, login in prod.logins.items() if login.credentials is not None}
    assert users == {Role.VIEWER: "prod", Role.OPERATOR: "prod", Role.ADMIN: "admin"}
    assert test.roles is not None
    assert test.roles[Role.OPERATOR] == {"staff"}
    assert (test.read_only, test.logins, opened.passes_token) == (True, {}, True)


def test_one_cluster_and_nothing_else_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "console.toml"
    path.write_text('[clusters.main]\nbootstrap = "127.0.0.1:9092"\n')
    (only,) = read_config(path).clusters
    assert (only.name, only.roles, only.logins) == ("main", None, {})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('listen = "0.0.0.0:8443"', 'listen = "8443"', "console.listen: expected HOST:PORT"),
        ("idle_minutes = 15", "idle_minute = 15", "console.idle_minute: is not known; did you mean idle_minutes?"),
        ("idle_minutes = 15", "idle_minutes = 0", "console.idle_minutes: must be from 0.1 to 10080"),
        ("idle_minutes = 15", "idle_minutes = true", "console.idle_minutes: expected a number"),
        ("idle_minutes = 15", 'tls_key = "secret"', "console.tls_key: counts only with tls_certificate"),
        ('names = ["Console.Example"]', "names = [1]", "console.names: expected a list of texts"),
        ("https://login", "http://login", "oidc.issuer: expected https://; http:// is for this machine alone"),
        ("https://login", "https://user:pw@login", "oidc.issuer: expected a URL"),
        ('"secret"\nconsole_url', '"secrets"\nconsole_url', "oidc.client_secret_file: there is no file"),
        ('scopes = ["openid",', "scopes = [", "oidc.scopes: must have openid"),
        ("clock_skew_seconds = 30", 'default_role = "root"', "oidc.default_role: expected viewer, operator, admin"),
        ('viewer = ["staff"]', 'viewers = ["staff"]', "roles.viewers: is not known; did you mean viewer?"),
        ("[clusters.prod]", '[clusters."../prod"]', "clusters.../prod: a name has at most 64 letters"),
        ("[clusters.prod]", "[clusters.prod]\ncolour = 1", "clusters.prod.colour: is not known; known are"),
        ("a.example:9092,", "a.example,", "clusters.prod.bootstrap: expected HOST:PORT"),
        ('bootstrap = "127.0.0.1:9092"\n', "", "clusters.test.bootstrap: is missing"),
        ("[clusters.test.roles]", "[clusters.test.role]", "clusters.test.role: is not known; did you mean roles?"),
        ('admin = "admin.properties"', 'root = "admin.properties"', "clusters.prod.users.root: is not known"),
        ("read_only = true", 'masking = "none"', "clusters.test.masking: there is no file"),
        ("[clusters.prod]", "[clusters.prod]\npass_token = true", "clusters.prod.pass_token: counts with [oidc]"),
        ("[clusters.test]", "[clusters.test", "(at line "),
        ("[clusters.test]", "[clusters.prod]", "Cannot declare ('clusters', 'prod') twice (at line "),
        ("[roles]", "[rolls]", "rolls: is not known; did you mean roles?"),
    ],
)
def test_an_error_names_the_key_and_the_reason(config: Path, before: str, after: str, said: str) -> None:
    text = config.read_text()
    assert before in text
    config.write_text(text.replace(before, after, 1))
    with pytest.raises(OptionError, match=re.escape(said)) as caught:
        read_config(config)
    assert str(caught.value).startswith(f"{config}: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "clusters: name at least one"),
        (b"clusters = 1", "clusters: expected a table: [clusters]"),
        (b"[clusters]\nprod = 1", "clusters.prod: expected a table: [clusters.prod]"),
        (b"\xff", "it is not UTF-8 text"),
        (b"#" * (1 << 20) + b"#", "may have at most 1,048,576 bytes"),
        (b"a=" + b"[" * 100_000, ": "),
        (b"".join(b"[clusters.c%d]\nbootstrap='a:1'\n" % number for number in range(101)), "has at most 100"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "console.toml"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=re.escape(said)):
        read_config(path)


def test_with_a_provider_roles_have_to_be_said(config: Path) -> None:
    text = config.read_text()
    begins, ends = text.index("[roles]"), text.index("[clusters.prod]")
    config.write_text(text[:begins] + text[ends:])
    with pytest.raises(OptionError, match=re.escape("clusters.prod.roles: with [oidc], say which values")):
        read_config(config)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read: no such file or directory"):
        read_config(tmp_path / "none.toml")


def test_the_example_of_the_page_can_be_used(config: Path) -> None:
    page = (ROOT / "docs" / "console-access.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    folder = config.parent
    for name in ("console.crt", "console.key", "client-secret"):
        (folder / name).write_text("x")
    for name in ("prod-viewer", "prod-operator", "prod-admin"):
        (folder / f"{name}.properties").write_text((folder / "admin.properties").read_text())
    config.write_text(example)
    options = read_config(config)
    assert [one.name for one in options.clusters] == ["prod", "test"]
    assert set(options.clusters[0].logins) == set(Role)
    assert options.oidc is not None


def test_the_page_names_every_key(config: Path) -> None:
    page = (ROOT / "docs" / "console-access.md").read_text(encoding="utf-8")
    for table in ("console", "oidc", "clusters.prod"):
        text = config.read_text().replace(f"[{table}]", f"[{table}]\nno-such-key = 1", 1)
        config.with_name("other.toml").write_text(text)
        with pytest.raises(OptionError, match="is not known; known are ") as caught:
            read_config(config.with_name("other.toml"))
        known = str(caught.value).partition("known are ")[2].split(", ")
        assert len(known) > 8
        for key in known:
            assert key in ("users", "roles") or f"`{key}" in page, key


@pytest.mark.parametrize("option", ["--masking", "--schema-registry", "--audit-log", "--command-config", "-X"])
def test_an_option_that_would_not_count_beside_a_file_is_refused(option: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("")
    (tmp_path / "console.toml").write_text("")
    value = "a=b" if option == "-X" else str(rules)
    result = CliRunner().invoke(fencepost, ["console", "--config", str(tmp_path / "console.toml"), option, value])
    assert result.exit_code == 1
    assert f"{option} does not go with --config" in result.output
