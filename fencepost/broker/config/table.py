"""Table of all settings of the broker, in the groups that the documentation shows.

An attribute is a row: its name is Kafka's with underscores for dots, its value the typed default. The command line,
properties files, the environment, DescribeConfigs and docs/configuration.md all read this table. Names that start with
`fencepost.` are our own. Only `Settings`, which inherits all groups, has instances: the groups need no methods.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.broker.config.cluster_settings import ClusterSettings
from fencepost.broker.config.security_table import AuthenticationSettings, EncryptionSettings
from fencepost.broker.config.setting import (
    LARGEST_RECORD_BYTES,
    MAX_INT32,
    MAX_INT64,
    SMALLEST_SEGMENT_BYTES,
    Scope,
    SettingType,
    accepted,
    any_of,
    at_least,
    between,
    connection_counts,
    declare,
    distinct,
    each_of,
    expirations_by_name,
    gzip_levels,
    least_for_groups,
    most_for_groups,
    not_zero,
    one_copy,
    one_of,
    one_of_in_any_case,
)

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = (
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.INT,
    SettingType.SHORT,
    SettingType.LONG,
    SettingType.DOUBLE,
    SettingType.LIST,
)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ServerSettings:
    """Node, data directory and logging"""

    node_id: int = declare(
        INT, 1, "The id of this broker in the cluster; clients see it in Metadata.", at_least(0), aliases=("broker.id",)
    )
    broker_rack: str | None = declare(
        STRING,
        None,
        "The rack, or zone, of this broker, as Metadata shows it to clients. In a cluster of machines, consumers with "
        "this `client.rack` read sealed segments here.",
    )
    log_dirs: str = declare(
        STRING,
        "data",
        "The directory of all data of the broker: the logs of all partitions and the metadata. "
        "One directory; a list is refused. One broker at a time may use it.",
        aliases=("log.dir",),
    )
    fencepost_log_format: str = declare(
        STRING,
        "human",
        "Format of the broker's own log: text for people, or one JSON object per line.",
        one_of("human", "json"),
    )
    fencepost_log_level: str = declare(
        STRING, "info", "The lowest level of event that is logged.", one_of("debug", "info", "warning", "error")
    )
    fencepost_shutdown_drain_ms: int = declare(
        INT, 5_000, "How long a stopping broker waits for requests in flight to be answered.", at_least(0)
    )
    fencepost_drain: bool = declare(
        BOOLEAN,
        False,
        "Whether this broker of several hands over all partitions that it leads, and takes none while another broker "
        "is there. Set it for one broker at a time, while it runs: `fencepost cluster drain` does. It stays set when "
        "the broker starts again.",
    )
    fencepost_node_settling_ms: int = declare(
        INT,
        15_000,
        "How long a broker of several that has come, or come back, gets no partitions but those that were chosen for "
        "it. Clients that have found it gone do not try it again for up to 10 seconds (reconnect.backoff.max.ms).",
        at_least(0),
    )
    fencepost_processes: int = declare(
        INT,
        0,
        "How many processes share the work and the data directory; docs/processes.md tells when that helps. 0: one, "
        "without any of that.",
        at_least(0),
    )
    fencepost_processes_silence_max_ms: int = declare(
        INT,
        10_000,
        "With several processes, one whose event loop has been silent for so long counts as hung; it is killed and "
        "started again. Longer than what a disk may block it for; clients of its partitions wait meanwhile.",
        at_least(2_000),
    )
    fencepost_shutdown_handover_ms: int = declare(
        INT,
        30_000,
        "How long a broker of several that gets SIGTERM hands over what it leads before it stops. 0: it stops at once.",
        at_least(0),
    )
    fencepost_start_opening_logs_ms: int = declare(
        INT,
        1_000,
        "How long startup opens logs before clients are served. The rest is opened in the background, first logs "
        "that clients request; until its log is open, a partition answers NOT_LEADER_OR_FOLLOWER, and clients retry.",
        at_least(0),
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ConnectionSettings:
    """Listeners and connections"""

    listeners: tuple[str, ...] = declare(
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where the broker listens: `NAME://host:port`, more than one separated by commas. "
        "An empty host or 0.0.0.0 means all interfaces; port 0 takes a free one. Kafka's default is all interfaces; "
        "ours is this machine only, because no listener authenticates clients.",
    )
    advertised_listeners: tuple[str, ...] = declare(
        LIST,
        (),
        "The addresses that clients connect to, one for each listener name. Unset: the same as `listeners`, "
        "with this machine's host name where `listeners` has none.",
    )
    listener_security_protocol_map: tuple[str, ...] = declare(
        LIST,
        ("PLAINTEXT:PLAINTEXT",),
        "The security protocol of each listener name: `INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL`. The names of the "
        "protocols themselves need no entry.",
    )
    authorizer_class_name: str = declare(
        STRING,
        "",
        "Whether clients need rights: `org.apache.kafka.metadata.authorizer.StandardAuthorizer` has access control "
        "lists (ACLs) in force, on every request, see `fencepost acls`. `kafka.security.authorizer.AclAuthorizer` of "
        "older files means the same. Empty: all clients may do everything. "
        "Clients of a PLAINTEXT listener are all `User:ANONYMOUS`; rules can tell them apart by host only.",
        one_of(
            "",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "kafka.security.authorizer.AclAuthorizer",
        ),
    )
    super_users: str = declare(
        STRING,
        "",
        "Principals that may do everything, whatever the ACLs are, separated by semicolons: `User:admin;User:backup`.",
    )
    fencepost_transactional_id_owners: str = declare(
        STRING,
        "",
        "`GLOB=PRINCIPAL` entries, with semicolons between them: only the principals of the globs that match a "
        "transactional id, and super users, may use, end or see it, of those whom ACLs allow it. Needs "
        "`authorizer.class.name`.",
    )
    allow_everyone_if_no_acl_found: bool = declare(
        BOOLEAN,
        False,
        "With an authorizer, whether all clients may do everything with a resource that no ACL is for.",
    )
    socket_request_max_bytes: int = declare(
        INT,
        104_857_600,
        "The largest request that is read; a connection that announces a larger one is closed.",
        at_least(1024),
    )
    queued_max_request_bytes: int = declare(
        LONG,
        268_435_456,
        "The most memory for the requests of all connections together, beyond 128 KiB for each connection. A request "
        "that finds none free waits, and its connection is not read; while others wait, a connection whose request "
        "does not arrive within two minutes is closed. -1: no bound, the default in Apache Kafka. Always enough for "
        "one request of `socket.request.max.bytes`, with a quarter reserved for requests up to 2 MiB and for reading "
        "ahead.",
        at_least(-1),
    )
    socket_send_buffer_bytes: int = declare(
        INT,
        -1,
        "The size of each connection's send buffer (SO_SNDBUF); -1 leaves it to the operating system, except "
        "for large replies to clients on the same machine: they get 192 KiB, which is fastest.",
        at_least(-1),
    )
    socket_receive_buffer_bytes: int = declare(
        INT,
        -1,
        "The size of each connection's receive buffer (SO_RCVBUF); -1 leaves it to the operating system.",
        at_least(-1),
    )
    socket_listen_backlog_size: int = declare(
        INT,
        1024,
        "The most connections that wait to be accepted. 50 in Apache Kafka; the client's system retries connections "
        "beyond it only after a second.",
        at_least(1),
    )
    connections_max_idle_ms: int = declare(
        LONG,
        600_000,
        "A connection without traffic and without a request in flight is closed after this time.",
        at_least(1),
    )
    max_connections: int = declare(
        INT,
        20_000,
        "The most open connections. A further one takes the place of one that has not logged in; without such, it is "
        "closed at once.",
        at_least(1),
        scope=Scope.LISTENER,
    )
    max_connections_per_ip: int = declare(
        INT, MAX_INT32, "The most open connections of one address; further ones are closed at once.", at_least(1)
    )
    max_connections_per_ip_overrides: str = declare(
        STRING, "", "The same for single addresses or hosts: `10.0.0.7:100,backup.example:5`.", connection_counts()
    )
    max_connection_creation_rate: int = declare(
        INT,
        MAX_INT32,
        "The most new connections per second; a connection beyond it waits before its first request is read.",
        at_least(1),
        scope=Scope.LISTENER,
    )
    fencepost_batch_max_decompressed_bytes: int = declare(
        INT,
        104_857_600,
        "The most bytes that a compressed batch may hold; a larger one is refused, however small it is compressed. "
        "Batches that hold more than a little are decompressed beside the event loop.",
        between(1024, 104_857_600),
    )
    fencepost_connection_max_in_flight: int = declare(
        INT,
        128,
        "The most unanswered requests of one connection; Produce requests that are appended together count as one. "
        "At this bound the broker stops reading from the connection until replies are sent.",
        at_least(1),
    )
    fencepost_connection_write_buffer_bytes: int = declare(
        INT,
        4_194_304,
        "The most bytes of replies that wait to be sent on one connection; beyond it the broker stops reading from it.",
        at_least(1024),
    )
    fencepost_queued_max_response_bytes: int = declare(
        LONG,
        268_435_456,
        "The most memory for the replies of all connections together while clients do not read them. Each connection "
        "gets up to `fencepost.connection.write.buffer.bytes` of it, or half of it divided by the number of "
        "connections, but at least 64 KiB, and one reply more. Beyond it the connection that has waited longest is "
        "closed. -1: no bound.",
        at_least(-1),
    )
    fencepost_connection_write_stall_ms: int = declare(
        INT,
        60_000,
        "A connection that stays above the write buffer limit for this long, because the client does not read, is "
        "closed.",
        at_least(1),
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TopicSettings:
    """Topics, requests and limits"""

    auto_create_topics_enable: bool = declare(
        BOOLEAN,
        True,
        "Whether a Metadata request creates a missing topic that it names, if the client allows it.",
    )
    delete_topic_enable: bool = declare(BOOLEAN, True, "Whether topics may be deleted.")
    num_partitions: int = declare(INT, 1, "Partitions of a topic that is created without a number.", at_least(1))
    default_replication_factor: int = one_copy(INT)
    fencepost_replication_factor_any: bool = declare(
        BOOLEAN,
        False,
        "Whether a topic may be created with any replication factor, as templates for clusters ask for, and whether "
        "the settings of replication factors may be above 1. It has one replica all the same. Otherwise a topic's "
        "factor is 1 at most; in a cluster of machines, the number of its brokers.",
    )
    min_insync_replicas: int = declare(
        INT,
        1,
        "Replicas that must have a record before acks=all is answered; capped at the replicas of the partition, as in "
        "Kafka. There is one here, and its disk makes a record durable.",
        at_least(1),
    )
    fencepost_max_partitions: int = declare(
        INT,
        100_000,
        "The most partitions on this broker, internal topics included; creating more is refused.",
        at_least(1),
    )
    message_max_bytes: int = declare(
        INT,
        1_048_588,
        "The largest record batch that is accepted, after compression. Topic config: `max.message.bytes`.",
        at_least(0),
    )
    max_decompressed_message_bytes: int = declare(
        INT,
        LARGEST_RECORD_BYTES,
        "The largest record that is accepted in a compressed batch, in bytes before compression.",
        between(1, LARGEST_RECORD_BYTES),
    )
    fetch_max_bytes: int = declare(
        INT,
        57_671_680,
        "The most bytes of records in the reply to one Fetch; a first batch that is larger is still returned.",
        at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = declare(
        INT, 1_000, "The most incremental fetch sessions (KIP-227).", at_least(0)
    )
    fencepost_fetch_sessions_max_bytes: int = declare(
        LONG,
        134_217_728,
        "The most memory for the partitions of all fetch sessions together, about 550 bytes each. Consumers beyond it "
        "get no session, and their requests list all their partitions. -1: no bound.",
        at_least(-1),
    )
    quota_window_num: int = declare(
        INT, 11, "The number of time windows over which a client's use is measured, for its quotas.", at_least(1)
    )
    quota_window_size_seconds: int = declare(INT, 1, "The length of one such window in seconds.", at_least(1))
    request_timeout_ms: int = declare(
        INT, 30_000, "How long the broker waits for the reply to a request that it sends itself.", at_least(0)
    )


SEGMENT_OF_STATE_BYTES = 4 * 1024 * 1024
"""Of topics that coordinators load: 25,000 to 50,000 records, in half a second."""
_COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LogSettings:
    """The log, defaults for all topics"""

    log_flush_interval_messages: int = declare(
        LONG,
        1,
        "1: a write is acknowledged when it is on disk (concurrent writes share one flush). Larger: when it is in the "
        "operating system's page cache, the default in Apache Kafka; that survives kill -9 but not power loss. "
        "The log is then flushed after this number of records.",
        at_least(1),
    )
    log_flush_interval_ms: int | None = declare(
        LONG,
        None,
        "If `log.flush.interval.messages` is larger than 1, records are flushed within this time, give or take 5 s. "
        "Unset: the operating system decides when.",
    )
    log_retention_hours: int = declare(INT, 168, "How long a segment is kept; -1: for ever.", not_zero())
    log_retention_minutes: int | None = declare(INT, None, "Takes precedence over `log.retention.hours`.", not_zero())
    log_retention_ms: int | None = declare(LONG, None, "Takes precedence over `log.retention.minutes`.", not_zero())
    log_retention_bytes: int = declare(LONG, -1, "The most bytes of a partition that are kept; below 0: all.")
    log_retention_check_interval_ms: int = declare(
        LONG,
        300_000,
        "How often a log is checked for retention and for rolling by time, first this long after it is created or "
        "opened; give or take a minute with thousands of partitions.",
        at_least(1),
    )
    log_segment_bytes: int = declare(
        INT,
        1_073_741_824,
        "The size at which a new segment begins.",
        at_least(SMALLEST_SEGMENT_BYTES),
    )
    log_roll_hours: int = declare(INT, 168, "The age at which a new segment begins.", at_least(1))
    log_roll_ms: int | None = declare(LONG, None, "Takes precedence over `log.roll.hours`.", at_least(1))
    log_roll_jitter_hours: int = declare(
        INT,
        0,
        "The most that is subtracted at random from a segment's age limit, so that not all segments roll together.",
        at_least(0),
    )
    log_roll_jitter_ms: int | None = declare(LONG, None, "Takes precedence over `log.roll.jitter.hours`.", at_least(0))
    log_segment_delete_delay_ms: int = declare(
        LONG, 60_000, "How long the files of a removed segment stay on disk.", at_least(0)
    )
    log_index_interval_bytes: int = declare(INT, 4_096, "Bytes of log between two index entries.", at_least(0))
    log_index_size_max_bytes: int = declare(INT, 10_485_760, "The index size at which the segment rolls.", at_least(4))
    log_cleanup_policy: tuple[str, ...] = declare(
        LIST,
        ("delete",),
        "How old records are removed: deleted by age and size, or compacted by key.",
        distinct(any_of("delete", "compact")),
    )
    log_cleaner_enable: bool = declare(
        BOOLEAN, True, "Whether the cleaner runs; without it, topics with the policy `compact` keep every record."
    )
    log_cleaner_backoff_ms: int = declare(LONG, 15_000, "How often the cleaner looks for logs to compact.", at_least(0))
    log_cleaner_delete_retention_ms: int = declare(
        LONG, 86_400_000, "How long tombstones and transaction markers are kept after compaction.", at_least(0)
    )
    log_cleaner_min_cleanable_ratio: float = declare(
        DOUBLE, 0.5, "The share of a log that must be uncompacted before it is compacted.", between(0, 1)
    )
    log_cleaner_min_compaction_lag_ms: int = declare(
        LONG, 0, "The least time that a record stays uncompacted.", at_least(0)
    )
    log_cleaner_max_compaction_lag_ms: int = declare(
        LONG, MAX_INT64, "The most time that a record stays uncompacted.", at_least(1)
    )
    log_message_timestamp_type: str = declare(
        STRING,
        "CreateTime",
        "The timestamp of a record: the producer's time, or the broker's at the append.",
        one_of("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = declare(
        LONG, MAX_INT64, "How far a record's timestamp may lie before the broker's time.", at_least(0)
    )
    log_message_timestamp_after_max_ms: int = declare(
        LONG, 3_600_000, "How far a record's timestamp may lie after the broker's time.", at_least(0)
    )
    compression_type: str = declare(
        STRING,
        "producer",
        "How batches are compressed; `producer` keeps them as they were sent.",
        one_of(*_COMPRESSION_TYPES),
    )
    compression_gzip_level: int = declare(INT, -1, "Compression level for gzip; -1: gzip's default.", gzip_levels())
    compression_lz4_level: int = declare(INT, 9, "Compression level for lz4; 9 is the fast one.", between(1, 17))
    compression_zstd_level: int = declare(INT, 3, "Compression level for zstd.", between(-131_072, 22))
    producer_id_expiration_ms: int = declare(
        INT,
        86_400_000,
        "How long a partition keeps the state of an idle producer, to recognise its retries.",
        at_least(1),
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class TransactionSettings:
    """Transactions"""

    fencepost_transaction_version: int = declare(
        SHORT,
        2,
        "The level of the feature `transaction.version` shown to clients. 2 gives every transaction its own epoch "
        "(KIP-890); 1 and 0 keep clients on the older protocol. A level set by UpdateFeatures takes precedence.",
        between(0, 2),
    )
    transaction_max_timeout_ms: int = declare(
        INT, 900_000, "The longest transaction time-out that a producer may set.", at_least(1)
    )
    transactional_id_expiration_ms: int = declare(
        INT, 604_800_000, "How long a transactional id without a transaction is kept.", at_least(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = declare(
        INT, 10_000, "How often transactions that have timed out are aborted.", at_least(1)
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = declare(
        INT, 3_600_000, "How often expired transactional ids are removed.", at_least(1)
    )
    transaction_partition_verification_enable: bool = declare(
        BOOLEAN,
        True,
        "Whether a transactional write is checked against the coordinator before it is appended (KIP-890).",
    )
    unstable_api_versions_enable: bool = declare(
        BOOLEAN,
        False,
        "Whether request versions that Kafka may still change are served and shown to clients: InitProducerId 6, which "
        "requests a two-phase commit (KIP-939).",
    )
    transaction_two_phase_commit_enable: bool = declare(
        BOOLEAN,
        False,
        "Whether producers may take part in a two-phase commit, whose transactions do not time out (KIP-939).",
    )
    fencepost_two_phase_transactional_ids: tuple[str, ...] = declare(
        LIST,
        (),
        "Globs, such as `orders-*`, of the transactional ids that take part in a two-phase commit though their clients "
        "cannot say so. Their transactions do not time out. Needs `transaction.two.phase.commit.enable`.",
    )
    fencepost_two_phase_warn_age_ms: int = declare(
        LONG,
        3_600_000,
        "The log names each open transaction without a time-out when it has this age, and again each time it is as "
        "much older: nothing but its client or an administrator ends it.",
        at_least(1),
    )
    fencepost_two_phase_abandoned_ms_by_name: tuple[str, ...] = declare(
        LIST,
        (),
        "`GLOB=MILLISECONDS` entries: an open transaction without a time-out is aborted if another id of its glob has "
        "committed a transaction that began this much later. For pools of ids that may leave one behind for good, such "
        "as Flink's POOLING; the first entry that matches counts. While no id of the pool commits, none is aborted. "
        "Needs `transaction.two.phase.commit.enable`.",
        expirations_by_name(),
    )
    fencepost_check_back_resolvers: tuple[str, ...] = declare(
        LIST,
        (),
        "Names of the sources that are asked about transactions in doubt. Each has settings of its own, "
        "`fencepost.check.back.NAME.ids` and so on: [check-back](check-back.md#when-it-asks). The ids that they name "
        "take part in a two-phase commit. Needs `transaction.two.phase.commit.enable`.",
    )
    fencepost_spark_decision_topics: tuple[str, ...] = declare(
        LIST,
        ("fencepost-sink-*",),
        "Globs of the topics in which [Spark's sinks](spark.md#what-you-can-rely-on) decide: the broker commits what "
        "they list, and time does not abort it. A topic that only `fencepost-sink-*` matches decides about the sink "
        "that it is named after, and `fencepost-sink-batch` about batch jobs without a sink's name. A topic that "
        "another glob matches decides about all sinks: let nobody else write there. Empty: no topic does.",
    )
    fencepost_transactional_id_expiration_ms_by_name: tuple[str, ...] = declare(
        LIST,
        (),
        "`GLOB=MILLISECONDS` entries: transactional ids that match are kept for this time instead of "
        "`transactional.id.expiration.ms`. For clients that use each id once; the first entry that matches counts.",
        expirations_by_name(),
    )
    add_partitions_to_txn_retry_backoff_ms: int = declare(
        INT,
        20,
        "How long the broker waits before it asks the coordinator again while an earlier transaction completes.",
        at_least(0),
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = declare(
        INT, 100, "The most time for which the broker asks again.", at_least(0)
    )
    transaction_state_log_num_partitions: int = declare(
        INT, 50, "Partitions of `__transaction_state` at its creation; fixed from then on.", at_least(1)
    )
    transaction_state_log_segment_bytes: int = declare(
        INT,
        SEGMENT_OF_STATE_BYTES,
        "The segment size of `__transaction_state`. A coordinator that starts or takes over reads what was "
        "written since the last compaction: up to about twice this.",
        at_least(14),
    )
    transaction_state_log_replication_factor: int = one_copy(SHORT)
    transaction_state_log_min_isr: int = declare(
        INT, 1, "`min.insync.replicas` of `__transaction_state`. A partition has one copy here, so 1.", between(1, 1)
    )
    transaction_state_log_load_buffer_size: int = accepted(INT, 5_242_880, "loading reads 4 MiB at a time", at_least(1))
    producer_id_expiration_check_interval_ms: int = accepted(
        INT, 600_000, "idle producers are expired every 600000 ms", at_least(1)
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class GroupSettings:
    """Consumer groups and offsets"""

    group_initial_rebalance_delay_ms: int = declare(
        INT,
        0,
        "How long the first rebalance of an empty group waits for more members. 3000 in Apache Kafka, whose "
        "quick-start files set it to 0.",
        at_least(0),
    )
    group_min_session_timeout_ms: int = declare(
        INT, 6_000, "The shortest session time-out that a member may set.", at_least(0)
    )
    group_max_session_timeout_ms: int = declare(
        INT, 1_800_000, "The longest session time-out that a member may set.", at_least(0)
    )
    group_max_size: int = declare(INT, 1_000, "The most members of a group.", at_least(1))
    group_consumer_session_timeout_ms: int = declare(
        INT, 45_000, "How long a member of a consumer group may go without a heartbeat.", at_least(1)
    )
    group_consumer_min_session_timeout_ms: int = least_for_groups(45_000, "consumer.session.timeout.ms")
    group_consumer_max_session_timeout_ms: int = most_for_groups(60_000, "consumer.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = declare(
        INT, 5_000, "How often members of a consumer group send heartbeats.", at_least(1)
    )
    group_consumer_min_heartbeat_interval_ms: int = least_for_groups(5_000, "consumer.heartbeat.interval.ms")
    group_consumer_max_heartbeat_interval_ms: int = most_for_groups(15_000, "consumer.heartbeat.interval.ms")
    group_consumer_max_size: int = declare(
        INT, 2_147_483_647, "The most members of a group of the consumer protocol.", at_least(1)
    )
    group_consumer_assignors: tuple[str, ...] = declare(
        LIST,
        ("uniform", "range"),
        "The assignors that members may choose; the first is the default.",
        each_of("uniform", "range"),
    )
    group_consumer_migration_policy: str = declare(
        STRING,
        "bidirectional",
        "Whether groups with members change between the classic and the consumer protocol: `upgrade` when the first "
        "member of the consumer protocol joins, `downgrade` when the last one leaves, both, or neither.",
        one_of_in_any_case("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_assignment_interval_ms: int = declare(
        INT, 1_000, "The least time between two assignments of a group of the consumer protocol.", between(0, 15_000)
    )
    group_consumer_min_assignment_interval_ms: int = least_for_groups(0, "consumer.assignment.interval.ms", at_least(0))
    group_consumer_max_assignment_interval_ms: int = most_for_groups(
        15_000, "consumer.assignment.interval.ms", at_least(0)
    )
    group_consumer_regex_refresh_interval_ms: int = accepted(
        INT, 600_000, "subscribed patterns are matched again whenever topics are created or deleted", at_least(10_000)
    )
    offset_metadata_max_bytes: int = declare(
        INT, 4_096, "The longest metadata text that may be committed with an offset.", at_least(0)
    )
    offsets_commit_timeout_ms: int = accepted(INT, 5_000, "a commit is answered once it is on disk", at_least(1))
    offsets_load_buffer_size: int = accepted(INT, 5_242_880, "loading reads 4 MiB at a time", at_least(1))
    offsets_retention_minutes: int = declare(
        INT, 10_080, "How long the offsets of an empty group are kept.", at_least(1)
    )
    offsets_retention_check_interval_ms: int = declare(
        LONG, 600_000, "How often expired offsets are removed.", at_least(1)
    )
    offsets_topic_num_partitions: int = declare(
        INT, 50, "Partitions of `__consumer_offsets` at its creation; fixed from then on.", at_least(1)
    )
    offsets_topic_segment_bytes: int = declare(
        INT,
        SEGMENT_OF_STATE_BYTES,
        "The segment size of `__consumer_offsets`. A coordinator that starts or takes over reads what was "
        "written since the last compaction: up to about twice this.",
        at_least(14),
    )
    offsets_topic_replication_factor: int = one_copy(SHORT)
    offsets_topic_compression_codec: int = declare(
        INT, 0, "Accepted when 0: batches of `__consumer_offsets` are not compressed.", between(0, 0), has_effect=False
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class StreamsGroupSettings:
    """Streams groups"""

    group_streams_session_timeout_ms: int = declare(
        INT,
        45_000,
        "How long a member of a streams group may go without a heartbeat. Group config: `streams.session.timeout.ms`.",
        at_least(1),
    )
    group_streams_min_session_timeout_ms: int = least_for_groups(45_000, "streams.session.timeout.ms")
    group_streams_max_session_timeout_ms: int = most_for_groups(60_000, "streams.session.timeout.ms")
    group_streams_heartbeat_interval_ms: int = declare(
        INT,
        5_000,
        "How often members of a streams group send heartbeats. Group config: `streams.heartbeat.interval.ms`.",
        at_least(1),
    )
    group_streams_min_heartbeat_interval_ms: int = least_for_groups(5_000, "streams.heartbeat.interval.ms")
    group_streams_max_heartbeat_interval_ms: int = most_for_groups(15_000, "streams.heartbeat.interval.ms")
    group_streams_max_size: int = declare(INT, 2_147_483_647, "The most members of a streams group.", at_least(1))
    group_streams_num_standby_replicas: int = declare(
        INT,
        0,
        "Standby copies of each task's state in a streams group. Group config: `streams.num.standby.replicas`.",
        at_least(0),
    )
    group_streams_max_standby_replicas: int = most_for_groups(2, "streams.num.standby.replicas", at_least(0))
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = declare(
        LIST,
        (),
        "The client tags that every member of a streams group needs, else MISSING_CLIENT_TAGS warns it. The assignor "
        "does not use them. Group config: `streams.rack.aware.assignment.tags`.",
        distinct(),
    )
    group_streams_initial_rebalance_delay_ms: int = declare(
        INT,
        3_000,
        "How long a streams group that was empty waits for more members before it assigns tasks. Group config: "
        "`streams.initial.rebalance.delay.ms`.",
        at_least(0),
    )
    group_streams_assignors: tuple[str, ...] = declare(
        LIST,
        ("sticky",),
        "The assignors of tasks; the first is the default. Accepted when `sticky`, the only one. Group config: "
        "`streams.assignor.name`.",
        each_of("sticky"),
        has_effect=False,
    )
    group_streams_assignment_interval_ms: int = declare(
        INT,
        1_000,
        "The least time between two assignments of a streams group. Group config: `streams.assignment.interval.ms`.",
        between(0, 15_000),
    )
    group_streams_min_assignment_interval_ms: int = least_for_groups(0, "streams.assignment.interval.ms", at_least(0))
    group_streams_max_assignment_interval_ms: int = most_for_groups(
        15_000, "streams.assignment.interval.ms", at_least(0)
    )


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ShareGroupSettings:
    """Share groups"""

    group_share_session_timeout_ms: int = declare(
        INT,
        45_000,
        "How long a member of a share group may go without a heartbeat. Group config: `share.session.timeout.ms`.",
        at_least(1),
    )
    group_share_min_session_timeout_ms: int = least_for_groups(45_000, "share.session.timeout.ms")
    group_share_max_session_timeout_ms: int = most_for_groups(60_000, "share.session.timeout.ms")
    group_share_heartbeat_interval_ms: int = declare(
        INT,
        5_000,
        "How often members of a share group send heartbeats. Group config: `share.heartbeat.interval.ms`.",
        at_least(1),
    )
    group_share_min_heartbeat_interval_ms: int = least_for_groups(5_000, "share.heartbeat.interval.ms")
    group_share_max_heartbeat_interval_ms: int = most_for_groups(15_000, "share.heartbeat.interval.ms")
    group_share_max_size: int = declare(INT, 200, "The most members of a share group.", between(1, 1_000))
    group_share_assignors: tuple[str, ...] = declare(
        LIST,
        ("simple",),
        "Accepted when `simple`, the only assignor.",
        each_of("simple"),
        has_effect=False,
    )
    group_share_assignment_interval_ms: int = declare(
        INT,
        1_000,
        "The least time between two assignments of a share group. Group config: `share.assignment.interval.ms`.",
        between(0, 15_000),
    )
    group_share_min_assignment_interval_ms: int = least_for_groups(0, "share.assignment.interval.ms", at_least(0))
    group_share_max_assignment_interval_ms: int = most_for_groups(15_000, "share.assignment.interval.ms", at_least(0))
    group_share_initialize_retry_interval_ms: int = declare(
        INT, 30_000, "How long until the creation of a share partition's state is retried.", at_least(1)
    )
    group_share_record_lock_duration_ms: int = declare(
        INT,
        30_000,
        "How long a member holds the acquisition lock of a record. Group config: `share.record.lock.duration.ms`.",
        between(1_000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms: int = least_for_groups(
        15_000, "share.record.lock.duration.ms", between(1_000, 30_000)
    )
    group_share_max_record_lock_duration_ms: int = most_for_groups(
        60_000, "share.record.lock.duration.ms", between(30_000, 3_600_000)
    )
    group_share_delivery_count_limit: int = declare(
        INT,
        5,
        "The most deliveries of a record, after which it is archived. Group config: `share.delivery.count.limit`.",
        between(2, 10),
    )
    group_share_min_delivery_count_limit: int = least_for_groups(2, "share.delivery.count.limit", between(2, 5))
    group_share_max_delivery_count_limit: int = most_for_groups(10, "share.delivery.count.limit", between(5, 25))
    group_share_partition_max_record_locks: int = declare(
        INT,
        2_000,
        "The most records of a partition in flight; at this bound no more are acquired. Group config: "
        "`share.partition.max.record.locks`.",
        between(100, 10_000),
    )
    group_share_min_partition_max_record_locks: int = least_for_groups(
        100, "share.partition.max.record.locks", between(100, 2_000)
    )
    group_share_max_partition_max_record_locks: int = most_for_groups(
        4_000, "share.partition.max.record.locks", between(2_000, 10_000)
    )
    group_share_max_share_sessions: int = declare(INT, 2_000, "The most open share sessions.", at_least(1))
    errors_deadletterqueue_auto_create_topics_enable: bool = declare(
        BOOLEAN, False, "Whether a missing dead-letter topic that a share group's configs name is created (KIP-1191)."
    )
    errors_deadletterqueue_topic_name_prefix: str = declare(
        STRING,
        "dlq.",
        "How the names of dead-letter topics of share groups begin; no others are written (KIP-1191).",
    )
    share_coordinator_state_topic_num_partitions: int = declare(
        INT, 50, "Partitions of `__share_group_state` at its creation; fixed from then on.", at_least(1)
    )
    share_coordinator_state_topic_segment_bytes: int = declare(
        INT,
        SEGMENT_OF_STATE_BYTES,
        "The segment size of `__share_group_state`. A coordinator that starts or takes over reads what was "
        "written since the last compaction: up to about twice this.",
        at_least(14),
    )
    share_coordinator_state_topic_replication_factor: int = one_copy(SHORT)
    share_coordinator_state_topic_min_isr: int = declare(
        SHORT, 1, "`min.insync.replicas` of `__share_group_state`. A partition has one copy here, so 1.", between(1, 1)
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = declare(
        INT, 500, "Update records of a share partition between two snapshots.", between(0, 500)
    )
    share_coordinator_write_timeout_ms: int = accepted(
        INT, 5_000, "an acknowledgement is answered once it is on disk", at_least(1)
    )
    share_coordinator_load_buffer_size: int = accepted(INT, 5_242_880, "loading reads 4 MiB at a time", at_least(1))


@dataclass(frozen=True, init=False, eq=False, repr=False)
class HttpSettings:
    """HTTP listener: metrics and health"""

    fencepost_http_listener: str | None = declare(
        STRING,
        None,
        "Where the HTTP listener is: `host:port`, such as `127.0.0.1:9644`, or `https://host:port` for TLS with "
        "`listener.name.http.ssl.keystore.location`; port 0 takes a free one. It serves "
        "`/metrics`, `/healthz`, `/readyz`, `/livez` and `/v1/…`, see [monitoring.md](monitoring.md). Unset: there is "
        "none. It needs `pip install 'fencepost[http]'`.",
    )
    fencepost_http_token_file: str | None = declare(
        STRING,
        None,
        "A file of tokens for HTTP clients, a line for each: `name:role:sha256`, with the role `viewer` (may read) or "
        "`operator` (may change, too) and the SHA-256 of the token in hex. Clients send the token as `Authorization: "
        "Bearer …`. Every change needs one; on a listener that other machines reach, all but the health paths do.",
    )
    fencepost_http_host_names: tuple[str, ...] = declare(
        LIST,
        (),
        "Further names by which HTTP clients know this broker, such as that of a Kubernetes Service. A request with "
        "another name in its Host header is refused; addresses are accepted, as is the name of this machine.",
    )
    fencepost_metrics_max_partitions: int = declare(
        INT,
        5_000,
        "With more partitions than this, metrics for each partition are left out, but for stuck ones; with more "
        "committed offsets, all but the largest lags of groups.",
        at_least(0),
    )
    fencepost_client_metrics_max_series: int = declare(
        INT,
        10_000,
        "The most series of metrics that clients have sent (KIP-714) and that `/metrics` shows; a client has at most "
        "1,000 of them.",
        at_least(0),
    )
    telemetry_max_bytes: int = declare(
        INT,
        1_048_576,
        "The most bytes of metrics, as sent and decompressed, that a client may push at once (KIP-714).",
        at_least(1),
    )


SECTIONS: tuple[type, ...] = (
    ServerSettings,
    ConnectionSettings,
    EncryptionSettings,
    AuthenticationSettings,
    HttpSettings,
    ClusterSettings,
    TopicSettings,
    LogSettings,
    TransactionSettings,
    GroupSettings,
    StreamsGroupSettings,
    ShareGroupSettings,
)
