"""The operations of the control API: a table that serves, checks and describes them.

Nouns are read with GET, and have their arguments in the query. Verbs are done with POST, and have them in a JSON
object. Each operation has the name, arguments and meaning of a method of `fencepost.testing.methods.BrokerMethods`.
"""

from __future__ import annotations

from typing import Final

from fencepost.testing.http import running
from fencepost.testing.http.answers import (
    DONE,
    ENCODINGS,
    FAULT,
    GROUP,
    MOST,
    RECORD,
    REQUEST,
    STATES,
    TEXT,
    TRANSACTION,
)
from fencepost.testing.http.brokers import BROKER, CLOSED
from fencepost.testing.http.given_settings import MOST_PARTITIONS
from fencepost.testing.http.kinds import (
    Flag,
    Kind,
    Listed,
    Mapped,
    Nothing,
    Number,
    Scalar,
    Shape,
    Text,
    Whole,
)
from fencepost.testing.http.operation import NAME, Operation, Parameter

LONGEST_WAIT_S: Final = 300.0
MOST_RECORDS: Final = 10_000
LONGEST_CONTENT: Final = 16 * 1024 * 1024

ID: Final = Text(longest=1_000, least=1)
CONTENT: Final = Nothing(Text(longest=LONGEST_CONTENT))

_TIMEOUT = Parameter("timeout", Number(0, LONGEST_WAIT_S), "How long to wait, in seconds of the machine's clock.", 10.0)
_ENCODING = Parameter(
    "encoding", Text(choices=ENCODINGS), "How keys, values and headers are written as text.", ENCODINGS[0]
)
_CHOICE = (
    Parameter("topic", Nothing(NAME), "Only requests about this topic.", None),
    Parameter("client_id", Nothing(ID), "Only those of this client; `*` and `?` as in file names.", None),
    Parameter("transactional_id", Nothing(ID), "Only those of this transactional id.", None),
    Parameter("group", Nothing(ID), "Only those of this group; `*` and `?` as in file names.", None),
)
_WHICH = (
    *_CHOICE,
    Parameter("partition", Nothing(Whole(0, 2**31 - 1)), "Only requests about this partition.", None),
    Parameter("after", Whole(0, MOST), "Requests that pass first.", 0),
    Parameter("optional", Flag(), "Whether the broker may be closed before the fault has fired.", False),
)
_API = Parameter("api", NAME, "Name of Kafka's API, such as `EndTxn`.")
_ANY_API = Parameter("api", Nothing(NAME), "Name of Kafka's API; all, without one.", None)


def _timed(count: int | None, on: str) -> tuple[Parameter, ...]:
    return (
        *_WHICH,
        Parameter("count", Nothing(Whole(1, MOST)), "Requests that the fault meets; null for all.", count),
        Parameter(
            "on", Text(choices=("request", "reply")), "`request`: nothing is done yet. `reply`: all is done.", on
        ),
    )


_TOPIC = Parameter("topic", NAME, "Name of the topic.")
_TRANSACTIONAL_ID = Parameter("transactional_id", ID, "The transactional id.")
_GROUP = Parameter("group", ID, "Id of the group.")


def _object(name: str, /, **fields: tuple[Kind, str]) -> Shape:
    return Shape(name, fields)


_SERVICE: Final = (
    Operation(
        "program",
        "GET",
        "/",
        "The program: its version, process and number of brokers.",
        running.program,
        _object(
            "Program",
            version=(TEXT, "Of Fencepost."),
            pid=(Whole(1, 2**31), "Id of the process."),
            brokers=(Whole(0, MOST), "Brokers that are there."),
            most_brokers=(Whole(0, MOST), "Brokers that may be there."),
        ),
    ),
    Operation(
        "create_broker",
        "POST",
        "/brokers",
        "Start an empty broker at a port of its own; the answer comes when clients are served.",
        running.create_broker,
        BROKER,
        (
            Parameter("settings", Mapped(Scalar(), 1_000), "Settings of the broker, by Kafka's names.", None),
            Parameter("process", Flag(), "Whether it gets a process of its own, for `freeze` and kill -9.", False),
        ),
        status=201,
    ),
    Operation(
        "brokers",
        "GET",
        "/brokers",
        "All brokers, the oldest first.",
        running.brokers,
        _object("Brokers", brokers=(Listed(BROKER, MOST), "")),
    ),
    Operation("broker", "GET", "/brokers/{broker}", "One broker.", running.broker, BROKER),
    Operation(
        "close_broker",
        "DELETE",
        "/brokers/{broker}",
        "Close a broker, remove its data, and report faults that never fired.",
        running.close_broker,
        CLOSED,
        (Parameter("keep", Flag(), "Whether a copy of its data stays, for `fencepost log dump`.", False),),
    ),
)

_CONTENTS: Final = (
    Operation(
        "topic",
        "POST",
        "/brokers/{broker}/topic",
        "Create a topic.",
        running.topic,
        _object("CreatedTopic", name=(TEXT, "Its name.")),
        (
            Parameter("name", NAME, "Name of the topic."),
            Parameter("partitions", Whole(1, MOST_PARTITIONS), "Number of partitions.", 1),
            Parameter("configs", Mapped(Scalar(), 100), "Settings of the topic, by Kafka's names.", None),
        ),
        status=201,
    ),
    Operation(
        "topics",
        "GET",
        "/brokers/{broker}/topics",
        "The number of partitions of each topic, by name.",
        running.topics,
        _object("Topics", topics=(Mapped(Whole(1, MOST), MOST), "Number of partitions by name.")),
    ),
    Operation(
        "delete_topic",
        "POST",
        "/brokers/{broker}/delete_topic",
        "Delete a topic.",
        running.delete_topic,
        DONE,
        (_TOPIC,),
    ),
    Operation(
        "produce",
        "POST",
        "/brokers/{broker}/produce",
        "Append records, one for each value; creates the topic if need be.",
        running.produce,
        _object("Offsets", offsets=(Listed(Whole(0, 2**63 - 1), MOST), "Offsets of the records.")),
        (
            _TOPIC,
            Parameter("values", Listed(CONTENT, MOST_RECORDS, least=1), "A value for each record; null: a tombstone."),
            Parameter("key", CONTENT, "Key of all these records.", None),
            Parameter("partition", Whole(0, MOST_PARTITIONS - 1), "Number of the partition.", 0),
            Parameter("headers", Mapped(CONTENT, 1_000), "Headers of all these records.", None),
            Parameter("timestamp_ms", Nothing(Whole(0, 2**63 - 1)), "In milliseconds since 1970; null: now.", None),
            _ENCODING,
        ),
        status=201,
    ),
    Operation(
        "records",
        "GET",
        "/brokers/{broker}/records",
        "The records of a topic, partition by partition, without those of open and aborted transactions.",
        running.records,
        _object(
            "Records",
            records=(Listed(RECORD, MOST_RECORDS), ""),
            total=(Whole(0, 2**63 - 1), "Records that there are, those left out included."),
            next_skip=(Nothing(Whole(0, 2**63 - 1)), "The `skip` for those that are left; null if none are."),
        ),
        (
            _TOPIC,
            Parameter("count", Nothing(Whole(0, 2**31 - 1)), "Wait until there are this many.", None),
            Parameter("partition", Nothing(Whole(0, 2**31 - 1)), "Only this one.", None),
            Parameter(
                "isolation",
                Text(choices=("read_committed", "read_uncommitted")),
                "`read_uncommitted`: those of open and aborted transactions, too.",
                "read_committed",
            ),
            _TIMEOUT,
            _ENCODING,
            Parameter("skip", Whole(0, 2**31 - 1), "Records to leave out at the begin.", 0),
            Parameter("limit", Whole(1, MOST_RECORDS), "Records in the answer at most.", 1_000),
        ),
    ),
    Operation(
        "transactions",
        "GET",
        "/brokers/{broker}/transactions",
        "The state of each transactional id.",
        running.transactions,
        _object("Transactions", transactions=(STATES, "State by transactional id.")),
    ),
    Operation(
        "transaction",
        "GET",
        "/brokers/{broker}/transaction",
        "The state, producer and partitions of a transactional id.",
        running.transaction,
        TRANSACTION,
        (_TRANSACTIONAL_ID,),
    ),
    Operation(
        "fence",
        "POST",
        "/brokers/{broker}/fence",
        "Begin a session of a transactional id: its transaction is aborted, and its producer is a zombie.",
        running.fence,
        _object(
            "Session",
            producer_id=(Whole(0, 2**63 - 1), "Of the new session."),
            producer_epoch=(Whole(0, 2**15 - 1), "Of the new session."),
        ),
        (_TRANSACTIONAL_ID,),
    ),
    Operation(
        "groups",
        "GET",
        "/brokers/{broker}/groups",
        "The state of each group.",
        running.groups,
        _object("Groups", groups=(STATES, "State by group id.")),
    ),
    Operation(
        "group",
        "GET",
        "/brokers/{broker}/group",
        "The kind, state, members, offsets and lag of a group.",
        running.group,
        GROUP,
        (Parameter("group_id", ID, "Id of the group."),),
    ),
    Operation(
        "set_offset",
        "POST",
        "/brokers/{broker}/set_offset",
        "Set the committed offset of a group without members.",
        running.set_offset,
        DONE,
        (
            _GROUP,
            _TOPIC,
            Parameter("offset", Whole(0, 2**63 - 1), "The next offset that the group reads."),
            Parameter("partition", Whole(0, 2**31 - 1), "Number of the partition.", 0),
        ),
    ),
    Operation(
        "wait_for_lag",
        "POST",
        "/brokers/{broker}/wait_for_lag",
        "Wait until a group has committed all but `lag` of its records.",
        running.wait_for_lag,
        DONE,
        (
            _GROUP,
            Parameter("lag", Whole(0, 2**31 - 1), "Records that may be left.", 0),
            Parameter("topic", Nothing(NAME), "Only this topic.", None),
            _TIMEOUT,
        ),
    ),
)

_BROKER: Final = (
    Operation(
        "requests",
        "GET",
        "/brokers/{broker}/requests",
        "The latest requests of clients, the oldest first.",
        running.requests,
        _object(
            "Requests",
            requests=(Listed(REQUEST, 1_000), ""),
            total=(Whole(0, MOST), "Requests that there are, earlier ones included."),
        ),
        (
            _ANY_API,
            *_CHOICE,
            Parameter("limit", Whole(1, 1_000), "Requests in the answer at most.", 100),
            Parameter("fields", Flag(), "Whether the answer has the decoded requests and replies.", False),
        ),
    ),
    Operation(
        "advance",
        "POST",
        "/brokers/{broker}/advance",
        "Turn the broker's clock forward; the answer comes when all that became due is done.",
        running.advance,
        DONE,
        tuple(
            Parameter(unit, Number(0, most), f"{unit.capitalize()} that pass.", 0.0)
            for unit, most in (
                ("seconds", 1e9),
                ("minutes", 1e7),
                ("hours", 1e5),
                ("days", 1e4),
                ("weeks", 1e3),
            )
        ),
    ),
    Operation(
        "crash",
        "POST",
        "/brokers/{broker}/crash",
        "End the broker as kill -9 does; what it has acknowledged stays.",
        running.crash,
        BROKER,
    ),
    Operation(
        "stop",
        "POST",
        "/brokers/{broker}/stop",
        "Stop the broker in order; its data stay.",
        running.stop,
        BROKER,
    ),
    Operation(
        "restart",
        "POST",
        "/brokers/{broker}/restart",
        "Start the broker again, on the same data and address; stops it first if it runs.",
        running.restart,
        BROKER,
    ),
    Operation(
        "freeze",
        "POST",
        "/brokers/{broker}/freeze",
        "Halt the broker's process, as SIGSTOP does: connections stay, and nothing is answered.",
        running.freeze,
        BROKER,
    ),
    Operation(
        "thaw",
        "POST",
        "/brokers/{broker}/thaw",
        "Let a frozen process go on.",
        running.thaw,
        BROKER,
    ),
    Operation(
        "describe",
        "GET",
        "/brokers/{broker}/describe",
        "The broker's view in lines of text, for the message of a failed test.",
        running.describe,
        _object("Description", text=(TEXT, "Several lines.")),
        (Parameter("requests", Whole(0, 1_000), "Latest requests that it shows.", 15),),
    ),
)

_FAULTS: Final = (
    Operation(
        "fail",
        "POST",
        "/brokers/{broker}/fail",
        "Answer requests with an error; with a topic or partition, only for these.",
        running.fail,
        FAULT,
        (_API, Parameter("error", NAME, "Name of Kafka's error, such as `NOT_COORDINATOR`."), *_timed(1, "request")),
        status=201,
    ),
    Operation(
        "delay",
        "POST",
        "/brokers/{broker}/delay",
        "Delay replies, by the broker's clock.",
        running.delay,
        FAULT,
        (
            _ANY_API,
            Parameter("seconds", Number(0, 1e9), "Length of the delay, in seconds.", 1.0),
            *_timed(None, "reply"),
        ),
        status=201,
    ),
    Operation(
        "hold",
        "POST",
        "/brokers/{broker}/hold",
        "Hold replies until `release`, or the fault's end.",
        running.hold,
        FAULT,
        (_ANY_API, *_timed(None, "reply")),
        status=201,
    ),
    Operation(
        "disconnect",
        "POST",
        "/brokers/{broker}/disconnect",
        "Close the connection in place of the reply; without an API, the connections of `client_id` at once.",
        running.disconnect,
        FAULT,
        (_ANY_API, *_timed(1, "reply")),
        status=201,
    ),
    Operation(
        "crash_after",
        "POST",
        "/brokers/{broker}/crash_after",
        "Crash the broker at a request, before the reply leaves.",
        running.crash_after,
        FAULT,
        (
            _API,
            Parameter("durable", Flag(), "False: what the request has appended is lost.", True),
            *_WHICH,
        ),
        status=201,
    ),
    Operation(
        "faults",
        "GET",
        "/brokers/{broker}/faults",
        "All faults that were set, in their order.",
        running.faults,
        _object("Faults", faults=(Listed(FAULT, MOST), "")),
    ),
    Operation("fault", "GET", "/brokers/{broker}/faults/{fault}", "One fault.", running.fault, FAULT),
    Operation(
        "wait_until_fired",
        "POST",
        "/brokers/{broker}/faults/{fault}/wait_until_fired",
        "Wait until a fault has met that many requests.",
        running.wait_until_fired,
        FAULT,
        (Parameter("count", Whole(1, MOST), "Number of requests.", 1), _TIMEOUT),
    ),
    Operation(
        "release",
        "POST",
        "/brokers/{broker}/faults/{fault}/release",
        "Let the requests go that a fault holds; it holds later ones.",
        running.release,
        _object("Released", released=(Whole(0, MOST), "Number of requests.")),
    ),
    Operation(
        "remove",
        "DELETE",
        "/brokers/{broker}/faults/{fault}",
        "End a fault, and release its held requests.",
        running.remove,
        FAULT,
    ),
)

OPERATIONS: Final = (*_SERVICE, *_CONTENTS, *_BROKER, *_FAULTS)
