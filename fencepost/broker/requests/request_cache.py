"""Cache of the decoded requests of one connection: a request that repeats an earlier one is found by its bytes.

A hit replaces decoding and nothing else: the handler gets the earlier request object with the varying fields of this
frame in it. The declaration of an API (`repeats` of `@api`) names its varying fields.

Goals. A producer, a consumer and a member of a group send the same request again and again, with another batch, offset
or epoch in it; decoding it costs more than finding it. A miss must cost next to nothing, as there are clients that
never repeat a request. A hit must be certain: all constant bytes are compared, so no digest can collide. Memory is
bounded per connection, and requests that are not repeated leave.

Plan. A decoded request is compiled to a `RequestShape`: constant bytes, and the positions of the varying fields.
Requests of one layout differ in constant bytes only, so one `unpack` of a frame splits it for all of them, and a
dictionary finds the request by its constant bytes. The size of the frame selects the layouts, if no records vary it.
If they do, the layouts of the API are tried one after the other, up to the first records; `following` bytes decide
between requests that differ only behind these. An API of which nothing repeats in its first `MAXIMUM_COUNT` requests is
left alone for the rest of the connection.

Measured, in instructions of Python 3.11 for one request from its frame to its reply, found and decoded: produce 1,681
and 2,411, fetch 1,436 and 2,287, offset commit 1,765 and 2,606, 16 produces that arrive together 2,911 and 38,664 (a
run needs the cache). A miss costs 33 (metadata, which is never cached). `tests/costs` holds the first of each pair.
Not measured: connections with more than a few layouts, which no client that is tested has.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.primitives import MalformedError, continue_unsigned_varint
from fencepost.protocol.shape import ReplyForm, RequestShape, records_range, shape_of

if TYPE_CHECKING:
    from fencepost.broker.requests.routes import Route

log = get_logger(__name__)

MAXIMUM_COUNT: Final = 128
"""Cached requests of one API on one connection."""
MAXIMUM_ALIKE: Final = 8
"""Cached requests that differ only behind the first of their records: in the partitions that follow."""
MAXIMUM_LAYOUTS: Final = 8
"""Layouts that are tried one after the other: of requests of one API with records, or of one size."""
MAXIMUM_RECORDS: Final = 64
"""Requests with records for more partitions are decoded each time."""
MAXIMUM_BYTES: Final = 4096
"""Larger requests, records not counted, are decoded each time, to keep the cache of a connection small."""


class CachedRequest:
    """A decoded request that others repeat, and values derived from its constant fields.

    allowed_epoch: the authorizer's epoch in which the client had all rights that the request needs.
    request:  valid, with its varying fields, in the first step of its handler; then the next one like it may come.
    prepared: the handler's value, at the version `prepared_version` of the metadata; see `RequestContext.prepared`.
    form:     form of the reply, after the first usual answer.
    is_used:  whether it was repeated since room was made the last time.
    """

    __slots__ = (
        "allowed_epoch",
        "client_id",
        "fields",
        "form",
        "is_used",
        "prepared",
        "prepared_version",
        "records",
        "request",
        "route",
    )

    def __init__(self, route: Route, client_id: str | None, request: Any, shape: RequestShape) -> None:
        self.route = route
        self.client_id = client_id
        self.request = request
        self.fields = shape.fields
        self.records = shape.records
        self.allowed_epoch = -1
        self.form: ReplyForm | None = None
        self.prepared: Any = None
        self.prepared_version = -1
        self.is_used = False

    def drop_records(self) -> None:
        """Drop the references to the frame's memory, which the next request is read into."""
        for owner, name, _ in self.records:
            setattr(owner, name, b"")


class _Layout:
    """Cached requests whose varying fields are at the same positions.

    remembered: requests by their constant bytes, up to the first records: behind these several may differ.
    """

    __slots__ = ("remembered", "size_bytes", "struct", "unpack_from")

    def __init__(self, struct: Struct) -> None:
        self.struct = struct
        self.unpack_from = struct.unpack_from
        self.size_bytes = struct.size
        self.remembered: dict[tuple[bytes, ...], list[CachedRequest]] = {}


class RequestCache:
    """The cached requests of one connection.

    It switches itself off for an API whose requests never repeat: such a client must not pay for the cache.
    """

    __slots__ = ("_counts", "_layouts", "_patience", "_tried_counts", "_worth_it")

    def __init__(self) -> None:
        # By the low byte of the API key and the size of the frame; 0 for requests with records, whose sizes vary.
        self._layouts: dict[tuple[int, int], list[_Layout]] = {}
        self._counts: dict[int, int] = {}  # by API key
        self._patience: dict[int, int] = {}  # by API key: requests that are not remembered before the next try
        self._tried_counts: dict[int, int] = {}  # by API key: requests that were to be remembered
        self._worth_it: set[int] = set()  # keys of the APIs of which a request was ever repeated

    def __len__(self) -> int:
        return sum(self._counts.values())

    def clear(self) -> None:
        """Forget all requests."""
        self.__init__()  # type: ignore[misc]  # the state of a new one

    def find(self, frame: memoryview) -> tuple[CachedRequest, int] | None:
        """Return the earlier request that this one repeats, with the varying fields of this one, and its correlation
        id. None if there is none.
        """
        try:
            for layout in self._layouts.get((frame[1], len(frame)), ()):
                parts = layout.unpack_from(frame)
                found = layout.remembered.get(parts[::2])
                if found is not None:
                    cached = found[0]
                    cached.is_used = True
                    for (owner, name), value in zip(cached.fields, parts[3::2]):  # noqa: B905  # as many, by the struct
                        setattr(owner, name, value)
                    return cached, parts[1]
            for layout in self._layouts.get((frame[1], 0), ()):
                if layout.size_bytes < len(frame):
                    parts = layout.unpack_from(frame)
                    for cached in layout.remembered.get(parts[::2], ()):
                        if _set_records(cached, frame, layout.size_bytes):
                            cached.is_used = True
                            return cached, parts[1]
        except IndexError:
            return None  # it is too short for a request
        except Exception:
            # It can be decoded: without the cache all is as with it.
            log.exception("request_cache_failed")
            self.clear()
        return None

    def remember(
        self, frame: memoryview, body_position: int, request: Any, route: Route, client_id: str | None
    ) -> None:
        """Remember a decoded request, if others like it can be found by their bytes."""
        api_key, varying = route.api.key, route.varying
        if varying is None or (len(frame) > MAXIMUM_BYTES and not route.carries_records):
            return
        patience = self._patience.get(api_key, 0)
        if patience:
            self._patience[api_key] = patience - 1
            return
        tried_count = self._tried_counts[api_key] = self._tried_counts.get(api_key, 0) + 1
        if tried_count > MAXIMUM_COUNT and not self._is_worth_it(api_key):
            self._patience[api_key] = -1  # for ever
            self._forget_unused(api_key)
            return
        if self._counts.get(api_key, 0) >= MAXIMUM_COUNT and not self._forget_unused(api_key):
            self._patience[api_key] = MAXIMUM_COUNT
            return
        shape = shape_of(frame, body_position, request, route.version, varying, maximum_records=MAXIMUM_RECORDS)
        if shape is None or shape.struct.size + sum(len(field.following) for field in shape.records) > MAXIMUM_BYTES:
            return
        layout = self._layout(shape, api_key)
        if layout is None:
            return
        alike = layout.remembered.setdefault(shape.key, [])
        if len(alike) >= MAXIMUM_ALIKE:
            # A client whose requests differ behind the first records each time must not pay for the cache.
            forgotten_count = _forget_unused(alike)
            self._counts[api_key] -= forgotten_count
            if forgotten_count == MAXIMUM_ALIKE:
                self._patience[api_key] = MAXIMUM_COUNT * MAXIMUM_ALIKE
            elif not forgotten_count:
                self._patience[api_key] = MAXIMUM_COUNT
            return
        cached = CachedRequest(route, client_id, request, shape)
        cached.drop_records()
        alike.append(cached)
        self._counts[api_key] = self._counts.get(api_key, 0) + 1

    def _layout(self, shape: RequestShape, api_key: int) -> _Layout | None:
        """Find or make the layout of a shape; None if there are too many to try one after the other."""
        place = (api_key & 0xFF, 0 if shape.records else shape.struct.size)
        layouts = self._layouts.setdefault(place, [])
        for layout in layouts:
            if layout.struct.format == shape.struct.format:
                return layout
        if len(layouts) >= MAXIMUM_LAYOUTS:
            self._forget_unused(api_key)
            layouts = self._layouts.setdefault(place, [])
            if len(layouts) >= MAXIMUM_LAYOUTS:
                self._patience[api_key] = self._patience.get(api_key) or MAXIMUM_COUNT
                return None
        layouts.append(_Layout(shape.struct))
        return layouts[-1]

    def _is_worth_it(self, api_key: int) -> bool:
        """Whether any request of an API was ever repeated."""
        if api_key not in self._worth_it and any(
            cached.is_used
            for layout in self._of_api(api_key)
            for alike in layout.remembered.values()
            for cached in alike
        ):
            self._worth_it.add(api_key)
        return api_key in self._worth_it

    def _of_api(self, api_key: int) -> list[_Layout]:
        return [layout for place, layouts in self._layouts.items() if place[0] == api_key & 0xFF for layout in layouts]

    def _forget_unused(self, api_key: int) -> int:
        """Forget the requests of an API that were not repeated since this was done last; return how many there were."""
        self._is_worth_it(api_key)  # while it can be seen
        forgotten_count = 0
        for layout in self._of_api(api_key):
            for key, alike in list(layout.remembered.items()):
                forgotten_count += _forget_unused(alike)
                if not alike:
                    del layout.remembered[key]
        for place, layouts in list(self._layouts.items()):
            layouts[:] = [layout for layout in layouts if layout.remembered]
            if not layouts:
                del self._layouts[place]
        self._counts[api_key] = self._counts.get(api_key, 0) - forgotten_count
        return forgotten_count


def _forget_unused(alike: list[CachedRequest]) -> int:
    """Forget the requests that were not repeated since this was done last; return how many there were."""
    used = [cached for cached in alike if cached.is_used]
    forgotten_count = len(alike) - len(used)
    for cached in used:
        cached.is_used = False
    alike[:] = used
    return forgotten_count


def _set_records(cached: CachedRequest, frame: memoryview, position: int) -> bool:
    """Set the records of a cached request to those of a frame; returns False if the frame is of another shape."""
    is_flexible = cached.route.is_flexible
    try:
        for owner, name, following in cached.records:
            if is_flexible:  # as `records_range`, whose call is saved
                length, start = frame[position], position + 1
                if length > 0x7F:
                    length, start = continue_unsigned_varint(frame, start, length)
                end = start + length - 1
            else:
                start, end = records_range(frame, position, is_flexible=False)
            position = end + len(following)
            if end < start or frame[end:position] != following:
                break
            setattr(owner, name, frame[start:end])
        else:
            if position == len(frame):
                return True
    except (IndexError, struct_error, MalformedError):
        pass
    cached.drop_records()  # of the fields before the difference
    return False
