"""The client without an event loop: blocking connections to the brokers of one cluster."""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from fencepost.client.errors import ClusterError, NoAnswerError, UnreachableError, system_reason
from fencepost.client.plans import PAUSE_S, Address, Pause, Plan, Routes
from fencepost.client.session import ClientOptions, Sent, Session
from fencepost.protocol.framing import LENGTH_BYTES

PIECE_BYTES: Final = 1 << 20


class BlockingConnection:
    """One connection to one broker, logged in. Raises ClusterError if there is none. Not for several threads at once,
    but for `close`, which ends a request that waits."""

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self._session = Session(str(address), options.client_id)
        self._answer_timeout_s = options.answer_timeout_s
        self._socket = _connected(address, options)
        self.is_closed = False
        opening = self._session.open(options.credentials, secrets.token_urlsafe(24))
        try:
            sent = next(opening)
            while True:
                sent = opening.send(self._exchange(sent))
        except StopIteration:
            return
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        with suppress(OSError):
            self._socket.close()

    def send(self, request: Any) -> Any:
        """Send a request and return its reply; None for one that has none. Raises ClusterError.

        After any failure but NotServedError the connection is closed: an answer that comes late must not be taken for
        that of another request.
        """
        sent = self._session.prepare(request)
        try:
            frame = self._exchange(sent)
            return self._session.answer(sent, frame) if sent.has_answer else None
        except BaseException:
            self.close()
            raise

    def _exchange(self, sent: Sent) -> bytes:
        give_up_at_s = time.monotonic() + self._answer_timeout_s
        try:
            self._socket.settimeout(self._answer_timeout_s)
            self._socket.sendall(sent.frame)
            if not sent.has_answer:
                return b""
            length = self._session.frame_bytes(self._receive(LENGTH_BYTES, give_up_at_s))
            return self._receive(length, give_up_at_s)
        except TimeoutError:
            raise NoAnswerError(f"{self._session.where} gave no answer in {self._answer_timeout_s:g} s") from None
        except OSError:
            raise UnreachableError(f"{self._session.where} closed the connection") from None

    def _receive(self, length_bytes: int, give_up_at_s: float) -> bytes:
        received = bytearray()
        while len(received) < length_bytes:
            left_s = give_up_at_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            piece = self._socket.recv(min(length_bytes - len(received), PIECE_BYTES))
            if not piece:
                raise ConnectionResetError
            received += piece
        return bytes(received)


def _connected(address: Address, options: ClientOptions) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout=options.connect_timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return (
                connected if options.tls is None else options.tls.wrap_socket(connected, server_hostname=address.host)
            )
        except BaseException:
            connected.close()
            raise
    except TimeoutError:
        raise NoAnswerError(f"no connection to {address} within {options.connect_timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise UnreachableError(f"TLS with {address} failed: {error.reason or error}") from None
    except OSError as error:
        raise UnreachableError(f"no broker answers at {address}: {system_reason(error)}") from None


class BlockingCluster:
    """Connections to the brokers of one cluster, made when they are first needed. Not for several threads at once.

    bootstrap: addresses to begin with; each is tried.
    """

    def __init__(self, bootstrap: Sequence[Address], options: ClientOptions) -> None:
        self.routes = Routes()
        self._bootstrap = bootstrap
        self._options = options
        self._connections: dict[Address, BlockingConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self.routes.clear()

    def send(self, request: Any, address: Address | None = None) -> Any:
        """Send a request to a broker, to any for None, and return the reply. Raises ClusterError.

        Connects anew, once, if an older connection has broken: the request may be sent twice.
        """
        places = self._bootstrap if address is None else (address,)
        failure: ClusterError = UnreachableError("no broker is known")
        for place in places:
            try:
                return self._send_to(request, place)
            except NoAnswerError:
                raise
            except UnreachableError as error:
                failure = error
        raise failure

    def run(self, plan: Plan, timeout_s: float) -> Any:
        """Carry a plan out and return its result. Raises ClusterError; RefusedError for one that takes too long."""
        give_up_at_s = time.monotonic() + timeout_s
        answer = None
        while True:
            try:
                step = plan.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if not isinstance(step, Pause):
                answer = self.send(step.request, step.address)
            elif time.monotonic() > give_up_at_s:
                raise step.too_long(timeout_s)
            else:
                time.sleep(PAUSE_S)

    def _send_to(self, request: Any, address: Address) -> Any:
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closed:
            try:
                return connection.send(request)
            except NoAnswerError:
                raise
            except UnreachableError:
                pass  # the broker was restarted, or closed the connection
        connection = self._connections[address] = self._opened(address)
        return connection.send(request)

    def _opened(self, address: Address) -> BlockingConnection:
        try:
            return BlockingConnection(address, self._options)
        except UnreachableError:
            self.routes.forget(address)
            raise
