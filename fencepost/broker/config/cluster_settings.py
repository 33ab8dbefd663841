"""Settings of a broker that is one of several machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fencepost.broker.config.password import Password
from fencepost.broker.config.setting import SettingType, at_least, between, declare

BOOLEAN, INT, LONG, PASSWORD = SettingType.BOOLEAN, SettingType.INT, SettingType.LONG, SettingType.PASSWORD

LONGEST_LEASE_MS: Final = 60_000


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ClusterSettings:
    """Cluster of machines"""

    fencepost_cluster_url: Password | None = declare(
        PASSWORD,
        None,
        "The PostgreSQL of a cluster of machines: `postgresql://user@host:5432/database`, also several hosts, of which "
        "the one that accepts writes is used. All brokers with the same URL are one cluster. It holds who leads what, "
        "the metadata and the ends of all logs. The password is best kept in `~/.pgpass` or `PGPASSWORD`. "
        "`search_path=name` in the URL names the schema, else it is `fencepost`. Unset: the broker is alone. It needs "
        "`pip install 'fencepost[cluster]'`.",
    )
    fencepost_cluster_objects: Password | None = declare(
        PASSWORD,
        None,
        "The object store of a cluster of machines: `s3://bucket/prefix`, with `?endpoint=https://host:port` for a "
        "server other than Amazon's. Keys are best kept in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.",
    )
    fencepost_cluster_lease_ms: int = declare(
        INT,
        3_000,
        "How long a broker of a cluster of machines may be silent before others take over what it leads, by the clock "
        "of PostgreSQL. The same on all brokers.",
        between(1_000, LONGEST_LEASE_MS),
    )
    fencepost_cluster_lease_renewal_ms: int = declare(
        INT, 1_000, "How often a broker renews its lease; at most a third of it.", between(50, 20_000)
    )
    fencepost_cluster_inline_max_bytes: int = declare(
        INT,
        256 * 1024,
        "The largest flush whose bytes go into rows of PostgreSQL; larger ones go into an object, which rows refer to. "
        "PostgreSQL takes 1 MB as rows several times more slowly than a store takes it as an object.",
        between(0, 1024 * 1024),
    )
    fencepost_cluster_tail_max_bytes: int = declare(
        LONG,
        128 * 1024 * 1024,
        "How much of all logs of a broker may be in PostgreSQL alone. Beyond it, the largest logs are sealed: their "
        "segments become objects. It bounds how long a take-over lasts.",
        at_least(1024 * 1024),
    )
    fencepost_cluster_scratch_max_bytes: int = declare(
        LONG,
        10 * 1024**3,
        "How much of the broker's own disk sealed segments may take, which consumers have asked for.",
        at_least(0),
    )
    fencepost_cluster_garbage_ms: int = declare(
        LONG,
        86_400_000,
        "How long objects stay that nothing refers to any more. PostgreSQL can be restored to a moment no older than "
        "this while the bucket stays as it is, so set it to as long as such a restore may be needed. At least 10 "
        "minutes, as brokers may be reading them.",
        at_least(600_000),
    )
    fencepost_cluster_asynchronous_standby_accepted: bool = declare(
        BOOLEAN,
        False,
        "Whether a broker starts on a PostgreSQL with standbys that no commit waits for (`synchronous_standby_names` "
        "is empty). A fail-over to one of them loses acknowledged records; one that only serves queries does no harm.",
    )
