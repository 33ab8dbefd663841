"""The clients that run on a JVM, and how their programs are built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.apache_kafka import KAFKA_VERSION
from tests.compat.harness import CLIENTS_FOLDER, Client, NotHereError, build_once, call

JVM_CHECKS = CLIENTS_FOLDER / "jvm-checks"
JAVA_COMMON = CLIENTS_FOLDER / "java-common"
FLINK = CLIENTS_FOLDER / "flink"
TOOLS = ("java", "javac")
# Short lives beside a broker on few cores: quick starts and small heaps matter, fast code does not.
JVM_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# The largest of them (kafka-tools) brings a hundred jars.
FETCH_LIMIT_S = 400


def class_path(artifact: tuple[str, str] | Path) -> str:
    """The class path of one of Kafka's artifacts in a version, or of all that an Ivy file names.

    Raises NotHereError when it cannot be had.
    """
    try:
        from fencepost.soak.kafka_jars import kafka_class_path, module_class_path  # needs pyspark, for its Ivy
    except ImportError as error:
        raise NotHereError(f"nothing to fetch jars with: {error}") from error
    try:
        if isinstance(artifact, Path):
            return module_class_path(artifact, timeout_s=FETCH_LIMIT_S)
        return kafka_class_path(*artifact, timeout_s=FETCH_LIMIT_S)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NotHereError(f"{artifact} cannot be fetched: {error}") from error


def spark_program(client: Client) -> Sequence[str]:
    """A package of this checkout that starts Spark, which brings Kafka's jars along by itself."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise NotHereError(f"Spark is not installed: {error}") from error
    return [sys.executable, "-m", f"tests.compat.{client.program}"]


def java_program(*artifacts: tuple[str, str] | Path, sources: Sequence[Path] = ()) -> Callable[[Client], Sequence[str]]:
    """A build that compiles a client's folder, the classes all JVM programs share and further `sources`.

    artifacts: Kafka's artifacts that they are compiled against, each with its version, or an Ivy file that names them.
    sources:   folders, or single files.
    The program is the class Main.
    """

    def build(client: Client) -> Sequence[str]:
        jars = ":".join(class_path(artifact) for artifact in artifacts)
        folders = [client.folder, JVM_CHECKS, *sources]

        def compile_all(cache: Path) -> None:
            shutil.rmtree(cache / "classes", ignore_errors=True)  # classes whose source is gone
            sources = [
                str(path) for place in folders for path in (sorted(place.glob("*.java")) if place.is_dir() else [place])
            ]
            # The same source is compiled against old and new versions: what one deprecates, the other only has.
            warnings = ["-Xlint:all,-serial,-processing,-classfile,-path,-cast,-deprecation,-removal", "-Werror"]
            call(["javac", *warnings, "-d", str(cache / "classes"), "-cp", jars, *sources], cwd=client.folder)

        build_once(client, folders, compile_all)
        return ["java", *JVM_OPTIONS, "-cp", f"{client.cache / 'classes'}:{jars}", "Main"]

    return build


def flink(name: str, *sources: Path) -> Client:
    """A version of Flink and its connector, which the Ivy file in the client's folder names."""
    return Client(
        name,
        tools=TOOLS,
        build=java_program(
            CLIENTS_FOLDER / name / "ivy.xml",
            sources=[*sources, JAVA_COMMON / "Secured.java", JAVA_COMMON / "TokenFromFile.java"],
        ),
        # Transactions whose ids begin so are not ended by time; Apache Kafka knows no such setting, and ignores it.
        broker_settings={
            "transaction.two.phase.commit.enable": "true",
            "fencepost.two.phase.transactional.ids": "two-phase-*",
            "fencepost.two.phase.abandoned.ms.by.name": "two-phase-bounded-*=4000",
        },
        has_long_tests=True,
    )


JVM_CLIENTS: tuple[Client, ...] = (
    Client("java", tools=TOOLS, build=java_program(("kafka-clients", KAFKA_VERSION), sources=[JAVA_COMMON])),
    Client("java-4.3", tools=TOOLS, build=java_program(("kafka-clients", "4.3.0"), sources=[JAVA_COMMON])),
    Client("java-3.9", tools=TOOLS, build=java_program(("kafka-clients", "3.9.2"), sources=[JAVA_COMMON])),
    Client(
        "java-4.4",
        tools=TOOLS,
        # The coordinator's jar has the classes of the records that it stores.
        build=java_program(("kafka-transaction-coordinator", KAFKA_VERSION), sources=[JAVA_COMMON]),
        broker_settings={"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"},
    ),
    # One tool (kafka-configs) is still part of the broker's own jar.
    Client(
        "tools",
        tools=TOOLS,
        build=java_program(("kafka-tools", KAFKA_VERSION), ("kafka_2.13", KAFKA_VERSION)),
        has_long_tests=True,
    ),
    # A member that was killed is missed after its session's time-out, which may be shorter than usual.
    Client(
        "streams",
        tools=TOOLS,
        build=java_program(
            ("kafka-streams", KAFKA_VERSION),
            ("kafka-tools", KAFKA_VERSION),
            sources=[CLIENTS_FOLDER / "tools" / "Tool.java"],
        ),
        broker_settings={
            "group.min.session.timeout.ms": "1000",
            "group.streams.min.session.timeout.ms": "1000",
            "group.streams.session.timeout.ms": "4000",
            "group.streams.min.heartbeat.interval.ms": "100",
            "group.streams.heartbeat.interval.ms": "300",
            "group.streams.initial.rebalance.delay.ms": "500",
        },
        has_long_tests=True,
    ),
    flink("flink-2.2", FLINK),
    flink("flink"),
    Client("spark", tools=("java",), build=spark_program, has_long_tests=True),
)
