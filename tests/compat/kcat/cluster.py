"""What a broker says of itself and its topics, and of what it does not have."""

from __future__ import annotations

from tests.compat.kcat.tool import PARTITION_COUNT, create_topic, kcat, metadata, read_all, succeed
from tests.compat.python_checks import Check, FailedError


def metadata_listing(check: Check) -> None:
    topic = create_topic(check)
    brokers = dict(enumerate(check.addresses, 1))
    listed = metadata(check, "-t", topic)
    check.equal("asked", (listed["originating_broker"]["id"] in brokers, listed["query"]), (True, {"topic": topic}))
    check.equal("controller is one of the brokers", listed["controllerid"] in brokers, True)
    found = sorted(listed["brokers"], key=lambda broker: broker["id"])
    check.equal("brokers", found, [{"id": number, "name": address} for number, address in brokers.items()])
    leaders = [partition["leader"] for partition in listed["topics"][0]["partitions"]]
    check.equal("leaders are brokers", set(leaders) <= brokers.keys(), True)
    described = [
        {"partition": partition, "leader": leader, "replicas": [{"id": leader}], "isrs": [{"id": leader}]}
        for partition, leader in zip(range(PARTITION_COUNT), leaders, strict=True)
    ]
    check.equal("topic", listed["topics"], [{"topic": topic, "partitions": described}])
    check.equal("asked for all", metadata(check)["query"], {"topic": "*"})

    def among_all() -> list[object]:  # perhaps of another broker, which comes to know of a topic a little later
        return [each for each in metadata(check)["topics"] if each["topic"] == topic]

    check.comes_to("among all topics", among_all, listed["topics"])
    lines = [line.removesuffix(" (controller)") for line in succeed(check, "-L", "-t", topic).splitlines()]
    of_brokers = lines[2 : 2 + len(brokers)]
    check.equal(
        "as text",
        [lines[1], *sorted(of_brokers), *lines[2 + len(brokers) :]],
        [
            f" {len(brokers)} brokers:",
            *[f"  broker {number} at {address}" for number, address in brokers.items()],
            " 1 topics:",
            f'  topic "{topic}" with {PARTITION_COUNT} partitions:',
            *[
                f"    partition {partition}, leader {leader}, replicas: {leader}, isrs: {leader}"
                for partition, leader in enumerate(leaders)
            ],
        ],
    )


def errors(check: Check) -> None:
    topic, missing = create_topic(check), check.name("missing")

    def refusal(*arguments: str, config: tuple[str, ...] = (), records: str = "") -> str:
        """What kcat says was wrong, on the last line of its errors."""
        ended = kcat(check, *arguments, config=config, records=records)
        check.equal(f"exit code of kcat {' '.join(arguments)}", ended.code, 1)
        complaints = [line for line in ended.errors.splitlines() if line.startswith("% ")]
        if not complaints:
            raise FailedError(f"kcat {' '.join(arguments)} said nothing: {ended.errors!r}")
        return complaints[-1]

    unknown = "Broker: Unknown topic or partition"
    check.equal(
        "consume a missing topic", refusal("-C", "-t", missing, "-e"), f"% ERROR: Topic {missing} error: {unknown}"
    )
    check.equal("it was not made", missing in [each["topic"] for each in metadata(check)["topics"]], False)
    check.equal(
        "consume a missing partition",
        refusal("-C", "-t", topic, "-p", "7", "-e"),
        f"% ERROR: Topic {topic} (with partitions 0..{PARTITION_COUNT - 1}): partition 7 does not exist",
    )
    check.equal(
        "produce to a missing partition",
        refusal("-P", "-t", topic, "-p", "7", records="lost"),
        "% Delivery failed for message: Local: Unknown partition",
    )
    check.equal(
        "offset of a missing partition",
        refusal("-Q", "-t", f"{topic}:7:-1"),
        "% ERROR: offsets_for_times failed: Local: Unknown partition",
    )
    several = succeed(check, "-Q", "-t", f"{topic}:0:-1", "-t", f"{missing}:0:-1").splitlines()
    wanted = [f"{missing} [0] offset -1: {unknown}", f"{topic} [0] offset 0"]
    check.equal("offsets of a topic and a missing one", sorted(several), wanted)
    check.equal(
        "produce to a bad name",
        refusal("-P", "-t", "a/b", config=("message.timeout.ms=5000",), records="lost"),
        "% Delivery failed for message: Broker: Invalid topic",
    )


def auto_creation(check: Check) -> None:
    topic = check.name("topic")
    succeed(check, "-P", "-t", topic, "-p", "0", records="created")
    check.equal("records", read_all(check, topic), ["created"])
    [described] = metadata(check, "-t", topic)["topics"]
    check.equal("partitions", len(described["partitions"]), PARTITION_COUNT)
