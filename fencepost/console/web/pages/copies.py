"""Copies of records into another topic: the form, the change with its preview, and pages of their progress."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fencepost.client.errors import RefusedError
from fencepost.client.view import Topic
from fencepost.console import words
from fencepost.console.copying import Copying, Plan
from fencepost.console.positions import Positions, PositionsError, positions_in, word_of
from fencepost.console.reading.scan import Budget, Found
from fencepost.console.reading.topics import read_sizes
from fencepost.console.record_filters import OPERATORS, PARAMETERS
from fencepost.console.values import FORMATS
from fencepost.console.web import jobs
from fencepost.console.web.audit import Line, Outcome
from fencepost.console.web.changes import Change, Form, WorldChangedError, change, field_of, reason_of
from fencepost.console.web.jobs import Job, TooManyJobsError
from fencepost.console.web.record_queries import STANDS, Query, Reading, begin, hits_in, query_of
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, path
from fencepost.diagnosis.words import counted
from fencepost.protocol.errors import ErrorCode

QUERY_FIELDS: Final = ("partition", "from", "time", "until", "stands", *PARAMETERS)
FIRST: Final = "first_offsets"
LAST: Final = "last_offsets"
"""Fields with the range as the preview showed it."""
MOST_ROWS: Final = 50
TRANSACTIONS: Final = "fencepost-console-copy-"
"""Transactional ids of copies begin so: a user needs the right to write with them."""


async def copy_form(visit: Visit) -> Page:
    """The choice of a target, for the records of a query."""
    name = visit.request.path_params["topic"]
    query = copied(query_of(visit.parameters))
    reading = await begin(visit.cluster, name, query, _no_budget())
    given = {key: visit.parameter(key) for key in QUERY_FIELDS if visit.parameter(key)}
    given["stands"] = query.stands
    data = {
        "topic": reading.topic,
        "given": given,
        "says": _filter_in_words(given),
        "offsets": reading.offsets,
        "partition_count": len(reading.partitions),
        "stands_of": [one for one in STANDS if one != "markers"],
        "formats": FORMATS,
        "operators": OPERATORS,
        "id_prefix": TRANSACTIONS,
    }
    return Page("copy.html", f"Copy records of {name}", data, menu="topics")


def copied(query: Query) -> Query:
    """The query of a copy: forwards, and only committed records unless others are asked for."""
    stands = "committed" if query.stands in ("all", "markers") else query.stands
    return replace(query, is_newest_first=False, at=None, stands=stands)


def _no_budget() -> Budget:
    return Budget(1 << 62, 1 << 62, 1e9)


@change("copy-records")
async def copy_records(visit: Visit, form: Form) -> Change:
    name = field_of(form, "topic", "the topic")
    query = copied(query_of(form))
    if form.get("undecided") == "yes" and query.stands == "committed":
        query = replace(query, stands="all")
    try:
        jobs.check_room(visit.session.jobs)
    except TooManyJobsError as error:
        raise BadFormError(str(error)) from None
    reading = await begin(visit.cluster, name, query, _no_budget())
    if reading.offline or reading.left_out:
        unread = reading.offline[0].name if reading.offline else counted(reading.left_out, "partition")
        raise BadFormError(f"{unread} cannot be copied now: choose the other partitions by their numbers")
    plan = await _plan(visit, form, reading)
    size_bytes = await _size_of(visit, reading, plan)

    async def perform() -> str:
        if any((one.start or 0) > plan.begins[one.index] for one in reading.partitions):
            raise WorldChangedError("Retention has deleted records of the range since the preview.")
        job = _start(visit, query, plan, reason_of(form))
        return f"The copy has begun: job {job.job_id}."

    rows = [
        (f"{name}-{index}", plan.begins[index], end, max(0, end - plan.begins[index]))
        for index, end in sorted(plan.ends.items())
    ]
    return Change(
        "Copy records",
        plan.target,
        _effects(plan, query, form, size_bytes),
        perform,
        path("topics", name, "messages"),
        "/copies",
        is_dangerous=False,
        details=f"{name} to {plan.target}, {counted(plan.offsets, 'offset')}, {_filter_in_words(form) or 'no filter'}",
        table_head=("Partition", "From offset", "Before offset", "Offsets"),
        table=rows[:MOST_ROWS],
        world={
            f"the id of topic {name}": plan.source_id.hex(),
            f"the id of topic {plan.target}": plan.target_id.hex(),
            f"the number of partitions of {plan.target}": plan.target_partitions,
        },
        values=[(row[0], "", f"offsets {row[1]} to {row[2] - 1}") for row in rows if row[3]],
        fixes={
            FIRST: word_of(Positions(plan.source_id, plan.begins)),
            LAST: word_of(Positions(plan.source_id, plan.ends)),
        },
    )


async def _plan(visit: Visit, form: Form, reading: Reading) -> Plan:
    """The copy that a form asks for. Raises ClusterError, BadFormError."""
    name = reading.topic.name
    target_name = field_of(form, "target", "the topic to copy into")
    target = await _target(visit, target_name)
    if not visit.values.hides_the_same(name, target_name):
        raise BadFormError(
            f"masking rules hide parts of {name} that they do not hide of {target_name}: add rules for it first"
        )
    begins, ends = _range_of(form, reading)
    count, highest = len(target.partitions), max(reading.begins)
    by_key = form.get("by") == "key"
    if not by_key and highest >= count:
        raise BadFormError(f"{target_name} has {counted(count, 'partition')}, and no {highest}: let the key decide")
    in_transactions = form.get("transactions") == "yes"
    return Plan(
        name,
        reading.topic.topic_id,
        target_name,
        target.topic_id,
        count,
        begins,
        ends,
        by_key,
        form.get("keep_time") == "yes",
        TRANSACTIONS + secrets.token_hex(6) if in_transactions else None,
    )


async def _target(visit: Visit, name: str) -> Topic:
    view = await visit.cluster.view([name])
    found = view.topics.get(name)
    if found is None or found.error:
        raise RefusedError(found.error if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
    if found.is_internal:
        raise BadFormError(f"{name} is internal to the cluster: nothing is copied into it")
    return found


def _range_of(form: Form, reading: Reading) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """First offsets, and those behind the last: as the preview showed them, or of now."""
    if not form.get(FIRST) and not form.get(LAST):
        return reading.begins, reading.ends
    try:
        first, last = positions_in(form.get(FIRST, "")), positions_in(form.get(LAST, ""))
    except PositionsError as error:
        raise BadFormError(str(error)) from None
    indexes = {one.index for one in reading.partitions}
    if first.offsets.keys() != indexes or last.offsets.keys() != indexes:
        raise BadFormError("the partitions of the preview are not those of the topic: begin anew")
    for one in reading.partitions:
        if last.offsets[one.index] > (one.high_watermark or 0):
            raise BadFormError(f"{one.name} ends before the range of the preview: begin anew")
    return first.offsets, last.offsets


async def _size_of(visit: Visit, reading: Reading, plan: Plan) -> int | None:
    """About how many bytes are read: the part of the topic's size that the range has; None if it is not known."""
    view = await visit.cluster.view([plan.source])
    sizes = await read_sizes(visit.cluster, view.topics)
    total = 0.0
    for one in reading.partitions:
        wanted = max(0, plan.ends[one.index] - plan.begins[one.index])
        size_bytes = sizes.of_nodes.get(one.leader, {}).get((plan.source, one.index))
        if wanted and size_bytes is None:
            return None
        if wanted and one.records:
            total += (size_bytes or 0) * min(1.0, wanted / one.records)
    return round(total)


def _effects(plan: Plan, query: Query, form: Form, size_bytes: int | None) -> Sequence[str]:
    size = "" if size_bytes is None else f", about {words.size(size_bytes)}"
    wanted = _filter_in_words(form)
    written = "at most as much" if wanted or query.stands != "all" else "as much"
    kind = {"committed": "Only committed records", "all": "All records, also of open and aborted transactions,"}
    which = kind.get(query.stands, f"Only records that stand as {query.stands}")
    count = counted(plan.offsets, "record")
    effects = [
        f"Up to {count} of {plan.source} are read{size}; {written} is written to {plan.target}.",
        f"{which} are copied, with keys, values and headers as they are.",
        "Their partition follows from the key." if plan.by_key else "Each record goes to the partition of its number.",
        "They keep their timestamps: retention of the target counts from these."
        if plan.keeps_time
        else "They get the time of the copy.",
        "Each chunk of at most 5,000 records is one transaction: read_committed readers see whole chunks."
        if plan.transactional_id is not None
        else "They are written outside of transactions: readers see them one by one.",
        "It runs in the background, and ends with your session. You can stop it.",
    ]
    if wanted:
        effects.insert(1, f"Filter: {wanted}.")
    if plan.source == plan.target:
        effects.append("Source and target are the same. The range is fixed now: the copy does not read itself.")
    return effects


def _filter_in_words(given: Mapping[str, str]) -> str:
    said = [
        f"the text {given['contains']!r}" if given.get("contains") else "",
        f"a key {'that is' if given.get('key_is') == 'yes' else 'with'} {given['key']!r}" if given.get("key") else "",
        f"a header {given['header']!r}" if given.get("header") else "",
        f"a header's value with {given['header_value']!r}" if given.get("header_value") else "",
        f"{given['field']} {given.get('op') or '='} {given.get('operand', '')!r}" if given.get("field") else "",
        f"from {given['time']} UTC on" if given.get("time") else "",
        f"before {given['until']} UTC" if given.get("until") else "",
    ]
    return ", ".join(one for one in said if one)


def _start(visit: Visit, query: Query, plan: Plan, reason: str) -> Job:
    session, values, sessions = visit.session, visit.values, visit.request.app.state.console.sessions
    cluster = visit.cluster.again()

    async def choose(found: Sequence[Found]) -> Sequence[Found]:
        return [one.found for one in await hits_in(values, plan.source, query, found)]

    client = visit.request.client
    line = Line(
        outcome=Outcome.BEGUN,
        change="copy-records",
        user=visit.person,
        address=client.host if client else "",
        role=visit.role.value,
        cluster=visit.cluster_name,
        bootstrap=visit.cluster.bootstrap,
        subject=plan.target,
        reason=reason,
        details=f"{plan.source} to {plan.target}",
    )
    job = Job(
        f"Copy {plan.source} to {plan.target}",
        plan.target,
        line,
        None,
        plan.offsets,
        lambda: session.is_open and sessions.find(session.browser.token, is_use=False) is not None,
        {
            "source": plan.source,
            "target": plan.target,
            "in_transactions": "no" if plan.transactional_id is None else "yes",
        },
    )
    copying = Copying(cluster, plan, choose, job.should_stop)
    job.progress = copying.progress

    async def work() -> str:
        try:
            await copying.run()
        finally:
            cluster.close()
            job.line = replace(job.line, details=f"{job.line.details}; {_figures(copying)}")
        whole = "All of the range was copied."
        return "All that retention has left of the range was copied." if copying.progress.deleted else whole

    try:
        jobs.start(session.jobs, job, work)
    except TooManyJobsError as error:
        cluster.close()
        raise WorldChangedError(f"{error}.") from None
    return job


def _figures(copying: Copying) -> str:
    progress = copying.progress
    return f"{progress.read_records} records read, {progress.written_records} written, {progress.in_doubt} in doubt"


async def copies(visit: Visit) -> Page:
    """The copies of this session."""
    return Page("copies.html", "Copies", {"jobs": shown(visit.session.jobs)}, menu="topics", refreshes=True)


async def copy_progress(visit: Visit) -> Page:
    job = _find(visit, visit.request.path_params["id"])
    next_offsets = sorted(job.progress.next_offsets.items())
    data = {"job": shown([job])[0], "next_offsets": next_offsets[:MOST_ROWS], "more": len(next_offsets) - MOST_ROWS}
    return Page("copy_progress.html", job.title, data, menu="topics", refreshes=job.is_running)


def _find(visit: Visit, job_id: str) -> Job:
    for job in visit.session.jobs:
        if job.job_id == job_id:
            return job
    raise NotFoundError(f"this session has no copy {job_id[:50]!r}: the audit log has those of others")


def shown(found: Sequence[Job]) -> list[dict[str, Any]]:
    """Jobs as pages show them, the newest first."""
    return [
        {
            "id": job.job_id,
            "title": job.title,
            **job.details,
            "in_transactions": job.details["in_transactions"] == "yes",
            "is_running": job.is_running,
            "outcome": "running" if job.is_running else job.outcome.value,
            "said": job.said,
            "begun_ms": job.begun_ms,
            "ended_ms": job.ended_ms,
            "total": job.total,
            "progress": job.progress,
        }
        for job in reversed(found)
    ]


@change("stop-copy")
async def stop_copy(visit: Visit, form: Form) -> Change:
    job = _find(visit, field_of(form, "id", "the copy"))
    if not job.is_running:
        raise BadFormError("it has ended already")

    async def perform() -> str:
        job.stopped_by = f"{visit.person or 'a person'} stopped it"
        return "The copy stops before its next chunk."

    address = path("copies", job.job_id)
    effects = [
        "Records that were written stay. An open transaction is aborted.",
        f"{counted(job.progress.written_records, 'record')} were written when you looked.",
    ]
    return Change("Stop the copy", job.job_id, effects, perform, address, address, details=job.title)
