"""Spark's Kafka connector in the version that runs with the installed PySpark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CONNECTORS: Final = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0", "4.3": "4.2.0"}
"""The newest Kafka connector that runs with each minor line of PySpark, and that Maven's central repository has whole.

Spark releases a PySpark more often than its connector, or than the `spark-token-provider-kafka-0-10` that a connector
needs: 4.0.5, 4.1.4 and 4.2.1 have no connector, 4.1.3's lacks its token provider, and 4.3 has none of its own.
"""


class NoConnectorError(RuntimeError):
    """There is no Kafka connector that runs with the installed PySpark."""


def kafka_connector() -> str:
    """The coordinates of the Kafka connector that runs with the installed PySpark.

    That is `org.apache.spark:spark-sql-kafka-0-10_SCALA:VERSION`, for the Scala that PySpark was built for. Raises
    ImportError without PySpark, NoConnectorError for a minor line of it that has no connector.
    """
    import pyspark

    return (
        f"org.apache.spark:spark-sql-kafka-0-10_{_scala_version(Path(pyspark.__file__).parent)}:"
        f"{connector_version(pyspark.__version__)}"
    )


def connector_version(pyspark_version: str) -> str:
    """The version of the connector for a PySpark, such as "4.2.0" for "4.2.1". Raises NoConnectorError."""
    line = ".".join(pyspark_version.split(".")[:2])
    if line not in CONNECTORS:
        raise NoConnectorError(
            f"no Kafka connector is known to run with PySpark {pyspark_version}: install PySpark "
            f"{', '.join(CONNECTORS)}, as pip install 'fencepost[spark]' does"
        )
    return CONNECTORS[line]


def _scala_version(pyspark_folder: Path) -> str:
    """The version of Scala that a PySpark was built for, such as "2.13", from the names of its jars."""
    for jar in pyspark_folder.glob("jars/spark-sql_*.jar"):
        return jar.name.removeprefix("spark-sql_").split("-")[0]
    raise FileNotFoundError(f"no Spark jars in {pyspark_folder}")
