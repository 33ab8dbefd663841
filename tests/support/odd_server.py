"""A server on a thread that answers as a test says: in pieces, late, with garbage, or not at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from fencepost.client.plans import Address
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import response_frame
from fencepost.protocol.headers import read_request_header, request_header_version
from fencepost.protocol.messages import REQUESTS
from fencepost.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fencepost.protocol.schema import decode

SERVED: Mapping[ApiKey, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 3), ApiKey.METADATA: (0, 12)}


class Asked(NamedTuple):
    """A request that arrived."""

    key: int
    version: int
    number: int
    message: Any

    def reply(self, message: Any) -> bytes:
        return b"".join(response_frame(self.number, message, self.version))


Answer = Callable[[Asked], Iterable[bytes]]
"""What to send, one piece after another; at CLOSE the server closes the connection."""

CLOSE = b""


class OddServer:
    """Answers ApiVersions with `served`, and what follows with `answer`. `asked` has all that arrived."""

    def __init__(self, answer: Answer, served: Mapping[ApiKey, tuple[int, int]] = SERVED) -> None:
        self.asked: list[Asked] = []
        self._answer = answer
        self._served = [ApiVersion(key, *versions) for key, versions in served.items()]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname()[:2])
        self._accepted: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for accepted in self._accepted:
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self._accepted.append(accepted)
                self._threads.append(threading.Thread(target=self._serve, args=(accepted,)))
                self._threads[-1].start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, accepted.makefile("rb") as stream, suppress(OSError):
            while len(length := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(length, "big"))
                key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                header = read_request_header(frame, request_header_version(key, version))
                message = decode(REQUESTS[key], frame, version, header.body_position)
                asked = Asked(key, version, header.correlation_id, message)
                self.asked.append(asked)
                if key == ApiKey.API_VERSIONS:
                    pieces: Iterable[bytes] = [asked.reply(ApiVersionsResponse(api_keys=self._served))]
                else:
                    pieces = self._answer(asked)
                for piece in pieces:
                    if piece is CLOSE:
                        return
                    accepted.sendall(piece)
