"""Shapes and forms of all declared messages: positions of fields, frames in parts, replies from constant bytes.

Positions are compared with what decoding says: a field at a changed position has the changed value, and no other has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.requests.api import APIS
from fencepost.broker.requests.routes import Api
from fencepost.protocol import shape
from fencepost.protocol.declaration import ArrayOf, StructOf, StructSchema, struct_schema_of
from fencepost.protocol.framing import LENGTH_BYTES, request_frame, response_frame
from fencepost.protocol.headers import request_header_version
from fencepost.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.primitives import RECORDS, FixedWidth, write_unsigned_varint
from fencepost.protocol.reader import compile_locator
from fencepost.protocol.schema import decode, encode
from fencepost.protocol.shape import ReplyForm, field_codes, records_range, shape_of
from fencepost.protocol.writer import COPIED_RECORDS_BYTES
from tests.protocol.message_strategies import (
    ALL_CASES,
    SHORT,
    Case,
    differs_from_the_version_before,
    for_every_layout,
    messages,
    parameters,
)

THROTTLE = "throttle_time_ms"


class Located(NamedTuple):
    """One field of one object of a message."""

    path: str
    owner: Any
    name: str
    code: str

    @property
    def value(self) -> Any:
        return getattr(self.owner, self.name)


def fields_of(schema: StructSchema, version: int, owner: Any, prefix: str = "") -> Iterator[Located]:
    """The fields of fixed width and the records of a message, in the order in which they are written."""
    for field in schema.fields:
        if version not in field.versions or version in field.tagged:
            continue
        value, path, inner = getattr(owner, field.name), prefix + field.name, field.type
        if isinstance(inner, ArrayOf):
            if isinstance(inner.element, StructOf):
                for element in value or ():
                    yield from fields_of(struct_schema_of(inner.element.python_class), version, element, f"{path}[].")
        elif isinstance(inner, StructOf):
            if value is not None:
                yield from fields_of(struct_schema_of(inner.python_class), version, value, f"{path}.")
        elif isinstance(inner, FixedWidth):
            yield Located(path, owner, field.name, inner.code)
        elif inner is RECORDS:
            yield Located(path, owner, field.name, RECORDS.name)


def another(code: str, value: Any) -> Any:
    """A value that a field may have instead."""
    if code == "?":
        return not value
    if code == "16s":
        return bytes(reversed(value)) if value != value[::-1] else b"another uuid ---"
    return 1.0 if code == "d" and value != 1.0 else 17 if value != 17 else 18


@lru_cache
def every_path(case: Case) -> tuple[str, ...]:
    """All paths that can be located: not those of arrays of numbers, which are read at once."""
    return tuple(path for path in field_codes(*case) if not path.endswith("[]"))


@lru_cache
def locator(case: Case) -> Callable[[bytes, int], list[tuple[str, int]]]:
    return compile_locator(case.schema, case.version, every_path(case))


def encoded_records(content: bytes | None, *, is_flexible: bool) -> bytes:
    """Records with their length, as the protocol says."""
    out = bytearray()
    if is_flexible:
        write_unsigned_varint(out, 0 if content is None else len(content) + 1)
    else:
        out += (-1 if content is None else len(content)).to_bytes(4, "big", signed=True)
    return bytes(out + (content or b""))


@for_every_layout
@given(data=st.data())
@SHORT
def test_a_field_is_where_the_locator_says(case: Case, data: st.DataObject) -> None:
    before = b"what lies before it"
    encoded = bytes(encode(data.draw(messages(case)), case.version))
    decoded = decode(case.message_type, encoded, case.version)
    located = locator(case)(before + encoded, len(before))
    fields = list(fields_of(case.schema, case.version, decoded))
    assert [path for path, _ in located] == [field.path for field in fields]
    is_flexible = case.version in case.schema.flexible
    for (_, position), field in zip(located, fields, strict=True):
        position -= len(before)
        was = field.value
        if field.code == RECORDS.name:
            now: Any = b"other records" * 11
            changed = encoded[:position] + encoded_records(now, is_flexible=is_flexible)
            changed += encoded[position + len(encoded_records(was, is_flexible=is_flexible)) :]
        else:
            now, pack = another(field.code, was), Struct(">" + field.code).pack
            assert encoded[position:].startswith(pack(was))
            changed = encoded[:position] + pack(now) + encoded[position + len(pack(was)) :]
        setattr(field.owner, field.name, now)
        assert decode(case.message_type, changed, case.version) == decoded, field.path
        setattr(field.owner, field.name, was)


@for_every_layout
def test_the_paths_of_a_message_are_those_of_its_fields(case: Case) -> None:
    message = full(case.schema)
    paths = {field.path: field.code for field in fields_of(case.schema, case.version, message)}
    assert {path: code for path, code in field_codes(*case).items() if not path.endswith("[]")} == paths


def full(schema: StructSchema) -> Any:
    """An object with one element in every array, and every struct."""
    made = schema.python_class()
    for field in schema.fields:
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(inner, StructOf):
            nested = full(struct_schema_of(inner.python_class))
            setattr(made, field.name, [nested] if isinstance(field.type, ArrayOf) else nested)
    return made


# Requests


REQUESTS = [case for case in ALL_CASES if case.schema.is_request]
for_every_request: Callable[[Any], Any] = pytest.mark.parametrize("case", parameters(REQUESTS))


def body_position(case: Case, client_id: str) -> int:
    """In a frame without its length: behind key, version, correlation id, client id, and tagged fields."""
    return 8 + 2 + len(client_id) + (request_header_version(case.schema.api_key, case.version) >= 2)


def in_array_or_alone(path: str) -> bool:
    """Whether all steps of a path but the last are arrays: the paths that an API may declare."""
    return all(step.endswith("[]") for step in path.split(".")[:-1])


def declared_paths(case: Case) -> tuple[str, ...]:
    """As many fields as can vary: records come last."""
    codes = field_codes(*case)
    paths = [path for path in every_path(case) if in_array_or_alone(path)]
    with_records = [path for path in paths if codes[path] == RECORDS.name]
    return tuple(with_records or paths)


@for_every_request
@given(data=st.data())
@SHORT
def test_a_shape_splits_a_request_into_what_stays_and_what_varies(case: Case, data: st.DataObject) -> None:
    if case.message_type is ProduceRequest:
        return  # its records are tested below
    paths = declared_paths(case)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shape, "_locators", {})  # the paths are not those that the API declares
        frame = request_frame(7, "client", data.draw(messages(case)), case.version)[LENGTH_BYTES:]
        decoded = decode(case.message_type, frame, case.version, body_position(case, "client"))
        found = shape_of(memoryview(frame), body_position(case, "client"), decoded, case.version, paths)
        assert found is not None
        assert found.records == ()
        fields = [field for field in fields_of(case.schema, case.version, decoded) if field.path in paths]
        assert [(id(field.owner), field.name) for field in found.fields] == [
            (id(field.owner), field.name) for field in fields
        ]
        parts = found.struct.unpack(frame)
        assert (parts[::2], parts[1]) == (found.key, 7)
        assert list(parts[3::2]) == [field.value for field in fields]
        for field in fields:
            setattr(field.owner, field.name, another(field.code, field.value))
        other = request_frame(-8, "client", decoded, case.version)[LENGTH_BYTES:]
        parts = found.struct.unpack(other)
        assert (parts[::2], parts[1]) == (found.key, -8)
        assert list(parts[3::2]) == [field.value for field in fields]


def produce(*batches: bytes | None, per_topic: int = 2) -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    return ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(name=f"topic-{start}", partition_data=partitions[start : start + per_topic])
            for start in range(0, len(partitions), per_topic)
        ],
    )


RECORDS_PATHS = ("topic_data[].partition_data[].records",)


def shape_of_produce(
    request: ProduceRequest, version: int, **options: Any
) -> tuple[memoryview, ProduceRequest, shape.RequestShape | None]:
    frame = memoryview(request_frame(7, "client", request, version)[LENGTH_BYTES:])
    position = body_position(Case(ProduceRequest, version), "client")
    decoded = decode(ProduceRequest, frame, version, position)
    return frame, decoded, shape_of(frame, position, decoded, version, RECORDS_PATHS, **options)


SIZES = [0, 1, 126, 127, 128, 20_000]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("sizes", [[size] for size in SIZES] + [[1, 1], SIZES, [0, 0, 0, 0, 0], list(range(60))])
def test_a_request_with_several_records_is_what_stays_with_the_records_between(
    version: int, sizes: Sequence[int]
) -> None:
    batches = [bytes([1 + index % 250]) * size for index, size in enumerate(sizes)]
    frame, decoded, found = shape_of_produce(produce(*batches), version)
    assert found is not None
    assert found.fields == ()
    put_together = b"".join(
        part if isinstance(part, bytes) else b"\0\0\0\7" for part in found.struct.unpack_from(frame)
    )
    assert put_together[: found.struct.size] == frame[: found.struct.size]
    for field, batch in zip(found.records, batches, strict=True):
        put_together += encoded_records(batch, is_flexible=version >= 9) + field.following
    assert put_together == frame
    owners = [partition for topic in decoded.topic_data for partition in topic.partition_data]
    assert [(id(field.owner), field.name) for field in found.records] == [(id(owner), "records") for owner in owners]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_request_with_null_among_its_records_has_no_shape(version: int) -> None:
    for place in range(3):
        batches: list[bytes | None] = [b"batch"] * 3
        batches[place] = None
        assert shape_of_produce(produce(*batches), version)[2] is None


def test_a_request_with_more_records_than_wanted_has_no_shape() -> None:
    for count, is_shaped in ((4, True), (5, False)):
        found = shape_of_produce(produce(*[b"batch"] * count), 12, maximum_records=4)[2]
        assert (found is not None) is is_shaped


def test_a_request_without_its_records_has_the_shape_of_one_with_nothing_in_it_that_varies() -> None:
    frame, _, found = shape_of_produce(produce(), 12)
    assert found is not None
    assert (found.fields, found.records, found.struct.size) == ((), (), len(frame))


@pytest.mark.parametrize("is_flexible", [False, True])
@pytest.mark.parametrize("size", [None, 0, 1, 126, 127, 16_382, 16_383, 70_000])
def test_the_range_of_records_follows_their_length(size: int | None, is_flexible: bool) -> None:
    content = None if size is None else b"x" * size
    buffer = b"before" + encoded_records(content, is_flexible=is_flexible)
    start, end = records_range(memoryview(buffer + b"behind"), len(b"before"), is_flexible=is_flexible)
    if content is None:
        assert end < start
    else:
        assert (buffer[start:end], end) == (content, len(buffer))


# Replies


RESPONSES = [case for case in ALL_CASES if not case.schema.is_request]
for_every_response: Callable[[Any], Any] = pytest.mark.parametrize("case", parameters(RESPONSES))


@for_every_response
@given(data=st.data(), throttle_ms=st.sampled_from([0, 1, 2**31 - 1]))
@SHORT
def test_a_form_writes_what_is_written_field_by_field(case: Case, data: st.DataObject, throttle_ms: int) -> None:
    codes = field_codes(*case)
    paths = tuple(path for path in every_path(case) if path != THROTTLE and codes[path] != RECORDS.name)
    first = data.draw(messages(case))
    if THROTTLE in codes:
        first.throttle_time_ms = 0
    other = copy.deepcopy(first)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shape, "_locators", {})  # as above
        form = ReplyForm(first, case.version, paths)
        fields = [field for field in fields_of(case.schema, case.version, other) if field.path in paths]
        for _ in range(2):
            for field in fields:
                setattr(field.owner, field.name, another(field.code, field.value))
            written = form.write(-5, [field.value for field in fields], throttle_ms)
            if THROTTLE in codes:
                other.throttle_time_ms = throttle_ms
            assert b"".join(written) == b"".join(response_frame(-5, other, case.version))


def repeated_apis() -> list[tuple[Api, int]]:
    return [
        (api, version)
        for api in APIS.values()
        if api.repeats is not None
        for version in range(api.minimum_version, api.maximum_version + 1)
    ]


@pytest.mark.parametrize(
    ("api", "version"), repeated_apis(), ids=lambda one: one.name if isinstance(one, Api) else str(one)
)
def test_what_apis_declare_to_vary_are_fields_of_their_messages_in_order(api: Api, version: int) -> None:
    assert api.repeats is not None
    for message_type, declared in ((api.request, api.repeats.request), (api.response, api.repeats.answer)):
        versions = range(api.minimum_version, api.maximum_version + 1)
        known = {path for one in versions for path in field_codes(message_type, one)}
        assert set(declared) <= known
        codes = field_codes(message_type, version)
        present = [path for path in declared if path in codes]
        assert present == sorted(present, key=list(codes).index)
        assert all(in_array_or_alone(path) for path in declared)
        assert not any(codes[path] == RECORDS.name for path in present[:-1]), "records come last"


def fetched(records: bytes | None, values: tuple[int, int, int], *, is_read_committed: bool = False) -> FetchResponse:
    partition = PartitionData(
        partition_index=3,
        error_code=0,
        high_watermark=values[0],
        last_stable_offset=values[1],
        log_start_offset=values[2],
        aborted_transactions=[] if is_read_committed else None,
        records=records,
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", topic_id=bytes(16), partitions=[partition])])


RECORDS_SIZES = [0, 1, 126, 127, 128, COPIED_RECORDS_BYTES - 1, COPIED_RECORDS_BYTES, COPIED_RECORDS_BYTES + 1, 70_000]


@pytest.mark.parametrize("version", range(5, 19))
@pytest.mark.parametrize("first_bytes", [0, 5_000])
@pytest.mark.parametrize("throttle_ms", [0, 9])
@pytest.mark.parametrize("is_read_committed", [False, True])
def test_a_form_with_records_writes_what_is_written_field_by_field(
    version: int, first_bytes: int, throttle_ms: int, is_read_committed: bool
) -> None:
    answer_paths = APIS[FetchResponse.api_key].repeats.answer  # type: ignore[union-attr,attr-defined]
    first = fetched(b"x" * first_bytes, (1, 2, 3), is_read_committed=is_read_committed)
    form = ReplyForm(first, version, answer_paths)
    for size in RECORDS_SIZES:
        values = 2**62 - size, size - 5, -1
        response = fetched(b"y" * size, values, is_read_committed=is_read_committed)
        response.throttle_time_ms = throttle_ms
        field_by_field = response_frame(2**31 - 1, response, version)
        written = form.write(2**31 - 1, values, throttle_ms, b"y" * size)
        assert b"".join(written) == b"".join(field_by_field)
        is_copied = size <= COPIED_RECORDS_BYTES
        assert len(written) == len(field_by_field) == (1 if is_copied else 3)


class Slice(Sized):
    """Records that are somewhere else: they have a length."""

    def __len__(self) -> int:
        return COPIED_RECORDS_BYTES + 1


def test_records_that_are_somewhere_else_are_passed_on() -> None:
    answer_paths = APIS[FetchResponse.api_key].repeats.answer  # type: ignore[union-attr,attr-defined]
    form = ReplyForm(fetched(b"", (1, 2, 3)), 12, answer_paths)
    records = Slice()
    before, passed_on, behind = form.write(1, (4, 5, 6), 0, records)
    assert passed_on is records
    whole = response_frame(1, fetched(bytes(len(records)), (4, 5, 6)), 12)
    assert (before, behind) == (whole[0], whole[2])


@pytest.mark.parametrize("version", range(5, 14))
@pytest.mark.parametrize("throttle_ms", [0, 1_234])
def test_replies_that_are_written_together_are_those_that_are_written_one_by_one(
    version: int, throttle_ms: int
) -> None:
    answer_paths = APIS[ProduceResponse.api_key].repeats.answer  # type: ignore[union-attr,attr-defined]

    def response(base_offset: int, time_ms: int) -> ProduceResponse:
        partition = PartitionProduceResponse(
            index=2, base_offset=base_offset, log_append_time_ms=time_ms, log_start_offset=4
        )
        topic = TopicProduceResponse("orders", bytes(16), [partition])
        return ProduceResponse(responses=[topic], throttle_time_ms=throttle_ms)

    first = response(0, -1)
    first.throttle_time_ms = 0
    form = ReplyForm(first, version, answer_paths)
    for count in (1, 2, 1_000):
        ids = [2**31 - 1 - index for index in range(count)]
        offsets, times = range(7, 7 + 3 * count, 3), [2**40 + index for index in range(count)]
        together = form.write_all(ids, offsets, times, [4] * count, throttle_ms=throttle_ms)
        one_by_one = [
            chunk
            for one in zip(ids, offsets, times, strict=True)
            for chunk in response_frame(one[0], response(*one[1:]), version)
        ]
        assert together == b"".join(one_by_one)


def test_versions_that_are_written_as_those_before_them_are_known() -> None:
    def first_versions(name: str) -> list[int]:
        cases = [case for case in ALL_CASES if case.message_type.__name__ == name]
        return [case.version for case in cases if differs_from_the_version_before(case)]

    assert first_versions("ProduceRequest") == [3, 9, 13]
    assert first_versions("EndTxnRequest") == [0, 3]
    assert first_versions("FetchResponse") == [4, 5, 7, 11, 12, 13, 16]
