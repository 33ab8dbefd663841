"""Settings from files, variables and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.config import SETTINGS, ConfigurationError, Entry, Settings, load_settings
from fencepost.broker.config.loading import parse_properties

BLANKS = "  "


def problems_of(**sources: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    return caught.value.problems


def test_without_any_source_everything_is_default() -> None:
    assert load_settings().settings == Settings()


def test_the_later_source_is_the_stronger(tmp_path: Path) -> None:
    path = tmp_path / "broker.properties"
    path.write_text("num.partitions=2\nnode.id=2\nmessage.max.bytes=2\nfetch.max.bytes=2222\n")
    loaded = load_settings(
        properties_path=str(path),
        environment={"FENCEPOST_NODE_ID": "3", "FENCEPOST_MESSAGE_MAX_BYTES": "3", "FENCEPOST_FETCH_MAX_BYTES": "3333"},
        assignments=["message.max.bytes=4", "fetch.max.bytes=4444"],
        options=[Entry("fetch.max.bytes", "5555", "--fetch")],
    )
    settings = loaded.settings
    assert (settings.num_partitions, settings.node_id, settings.message_max_bytes) == (2, 3, 4)
    assert settings.fetch_max_bytes == 5555
    assert settings.origins["num.partitions"] == "broker.properties:1"
    assert "FENCEPOST_NODE_ID" in settings.origins["node.id"]
    assert settings.origins["fetch.max.bytes"] == "--fetch"


def test_own_settings_are_set_by_variables_without_the_name_twice() -> None:
    assert load_settings(environment={"FENCEPOST_LOG_FORMAT": "json"}).settings.fencepost_log_format == "json"


def test_the_controller_listener_of_a_kraft_node_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
    )
    loaded = load_settings(properties_path=str(path))
    assert loaded.settings.listeners == ("PLAINTEXT://:9092",)
    assert loaded.settings.advertised_listeners == ("PLAINTEXT://localhost:9092",)
    assert "controller.listener.names" in loaded.warnings[0]


def test_other_variables_are_not_looked_at() -> None:
    environment = {"PATH": "/bin", "FENCEPOST_BOOTSTRAP": "host:1", "FENCEPOST_PYTHON": "python3"}
    assert load_settings(environment=environment).settings == Settings()


@pytest.mark.parametrize(("name", "nearest"), [("num.partition", "num.partitions"), ("broker.ids", "broker.id")])
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, nearest: str) -> None:
    (problem,) = problems_of(assignments=[f"{name}=3"])
    assert problem == f"--set: unknown setting {name!r}; did you mean {nearest!r}?"


def test_an_unknown_variable_is_refused_with_the_nearest_one() -> None:
    (problem,) = problems_of(environment={"FENCEPOST_NUM_PARTITION": "3"})
    assert problem == "environment: FENCEPOST_NUM_PARTITION: did you mean FENCEPOST_NUM_PARTITIONS?"


@pytest.mark.parametrize(
    "variable",
    [
        "FENCEPOST_PORT",
        "FENCEPOST_PORT_9092_TCP",
        "FENCEPOST_PORT_9092_TCP_ADDR",
        "FENCEPOST_PORT_9092_TCP_PORT",
        "FENCEPOST_PORT_9092_TCP_PROTO",
        "FENCEPOST_SERVICE_HOST",
        "FENCEPOST_SERVICE_PORT",
        "FENCEPOST_SERVICE_PORT_KAFKA",
        "FENCEPOST_BOOTSTRAP_SERVICE_HOST",
        "FENCEPOST_BOOTSTRAP_PORT_9092_TCP",
    ],
)
def test_a_variable_that_kubernetes_sets_for_a_service_is_ignored(variable: str) -> None:
    loaded = load_settings(environment={variable: "tcp://10.0.0.1:9092"})
    assert loaded.settings == Settings()
    assert not loaded.warnings


def test_a_variable_that_is_like_no_setting_is_ignored_with_a_warning() -> None:
    loaded = load_settings(environment={"FENCEPOST_TEAM": "orders"})
    assert loaded.settings == Settings()
    assert loaded.warnings == ("environment: FENCEPOST_TEAM names no setting and is ignored",)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [("FENCEPOST_LOG_DIR_", "FENCEPOST_LOG_DIRS"), ("FENCEPOST_LOGFORMAT", "FENCEPOST_LOG_FORMAT")],
)
def test_a_slip_is_answered_with_the_documented_variable(variable: str, meant: str) -> None:
    (problem,) = problems_of(environment={variable: "x"})
    assert problem == f"environment: {variable}: did you mean {meant}?"


def test_a_bad_value_is_refused_with_its_source_and_the_expected_form(tmp_path: Path) -> None:
    path = tmp_path / "broker.properties"
    path.write_text("# comment\n\nnum.partitions = many\n")
    (problem,) = problems_of(properties_path=str(path))
    assert problem == "broker.properties:3: num.partitions: expected whole number, 1 or more; got 'many'"


def test_all_problems_are_reported_together() -> None:
    problems = problems_of(
        assignments=["num.partitions=0", "nonsense", "log.cleanup.policy=shred", "auto.create.topics.enable=yes"],
        environment={"FENCEPOST_NODE_ID": "-1"},
    )
    assert len(problems) == 5


def test_settings_of_kafka_without_meaning_here_are_ignored_with_a_warning() -> None:
    loaded = load_settings(
        assignments=["zookeeper.connect=localhost:2181", "process.roles=broker,controller", "num.io.threads=8"]
    )
    assert loaded.settings == Settings()
    assert len(loaded.warnings) == 3
    assert "zookeeper.connect" in loaded.warnings[0]


def test_the_security_of_a_controllers_listener_is_ignored_like_the_listener() -> None:
    loaded = load_settings(
        assignments=["controller.listener.names=CONTROLLER", "listener.name.controller.sasl.kerberos.service.name=x"]
    )
    assert "listener.name.controller.sasl.kerberos.service.name has no meaning here" in loaded.warnings[1]


def test_a_topic_config_is_refused_with_its_broker_setting() -> None:
    (problem,) = problems_of(assignments=["retention.ms=1"])
    assert "config of single topics" in problem
    assert "log.retention.ms" in problem


def test_more_than_one_log_directory_is_refused() -> None:
    (problem,) = problems_of(assignments=["log.dirs=a,b"])
    assert problem == "--set: log.dirs: expected one directory; got 'a,b'"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (problem,) = problems_of(properties_path=str(tmp_path / "missing.properties"))
    assert "missing.properties: the settings file cannot be read: No such file or directory" in problem


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = rf"""
# a comment
! another
plain=value
spaced  =  value with blanks{BLANKS}
colon: value
blank value
empty=
continued=one,\
    two,\
    three
escaped\:key=tab\there \u00e4 \\ end
backslash=ends\\
last=x"""
    assert parse_properties(text) == [
        ("plain", "value", 4),
        ("spaced", "value with blanks", 5),
        ("colon", "value", 6),
        ("blank", "value", 7),
        ("empty", "", 8),
        ("continued", "one,two,three", 9),
        ("escaped:key", "tab\there ä \\ end", 12),
        ("backslash", "ends\\", 13),
        ("last", "x", 14),
    ]


def test_a_secret_on_the_command_line_is_warned_of_and_not_shown() -> None:
    given = ["listeners=SSL://127.0.0.1:0", "ssl.keystore.location=server.pem"]
    shown = load_settings(assignments=[*given, "listener.name.ssl.ssl.key.password=very secret"])
    (warning,) = shown.warnings
    assert "listener.name.ssl.ssl.key.password is a secret" in warning
    assert "very secret" not in warning + repr(shown.settings)
    assert not load_settings(assignments=[*given, "ssl.key.password=${env:HOME}"]).warnings
    assert not load_settings(options=[Entry("ssl.key.password", "x", "f:1")], assignments=given).warnings


COUNTS_OF_REPLICAS = [name for name in SETTINGS if name.endswith("replication.factor")]
OF_MACHINES = ["fencepost.cluster.url=postgresql://db/fencepost", "fencepost.cluster.objects=s3://bucket"]


@pytest.mark.parametrize("name", COUNTS_OF_REPLICAS)
def test_counts_of_replicas_above_1_are_for_clusters_of_machines_and_where_any_is_taken(name: str) -> None:
    assert len(COUNTS_OF_REPLICAS) == 4
    (problem,) = problems_of(environment={}, assignments=[f"{name}=3"])
    assert name in problem
    assert "fencepost.replication.factor.any=true" in problem
    for others in (OF_MACHINES, ["fencepost.replication.factor.any=true"]):
        settings = load_settings(environment={}, assignments=[f"{name}=3", *others]).settings
        assert getattr(settings, name.replace(".", "_")) == 3
    assert problems_of(environment={}, assignments=[f"{name}=0", *OF_MACHINES])
