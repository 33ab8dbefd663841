"""The client without an event loop: blocking connections to the brokers of one cluster."""

from __future__ import annotations

import math
import secrets
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from fencepost.client.errors import NoAnswerError, UnreachableError, system_reason, tls_failure
from fencepost.client.plans import PAUSE_S, Address, Pause, Plan, Routes
from fencepost.client.session import ClientOptions, Sent, Session
from fencepost.protocol.framing import LENGTH_BYTES

PIECE_BYTES: Final = 1 << 20


class BlockingConnection:
    """One connection to one broker, logged in. Raises ClusterError if there is none. Not for several threads at once,
    but for `close`, which ends a request that waits."""

    def __init__(self, address: Address, options: ClientOptions, give_up_at_s: float = math.inf) -> None:
        self._session = Session(str(address), options.client_id)
        self._answer_timeout_s = options.answer_timeout_s
        self._socket = _connected(address, options, min(options.connect_timeout_s, _left_s(give_up_at_s)))
        self.is_closed = False
        opening = self._session.open(options.credentials, secrets.token_urlsafe(24))
        try:
            sent = next(opening)
            while True:
                sent = opening.send(self._exchange(sent, give_up_at_s))
        except StopIteration:
            return
        except NoAnswerError as error:
            self.close()
            raise UnreachableError(str(error)) from None  # no request of a caller was sent
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        with suppress(OSError):
            self._socket.close()

    def send(self, request: Any, give_up_at_s: float = math.inf) -> Any:
        """Send a request and return its reply; None for one that has none. Raises ClusterError.

        give_up_at_s: a limit by `time.monotonic`, beside the options' time. After any failure but NotServedError the
        connection is closed: an answer that comes late must not be taken for that of another request.
        """
        sent = self._session.prepare(request)
        try:
            frame = self._exchange(sent, give_up_at_s)
            return self._session.answer(sent, frame) if sent.has_answer else None
        except BaseException:
            self.close()
            raise

    def _exchange(self, sent: Sent, give_up_at_s: float) -> bytes:
        limit_s = min(self._answer_timeout_s, _left_s(give_up_at_s))
        give_up_at_s = time.monotonic() + limit_s
        try:
            self._socket.settimeout(limit_s)
            try:
                self._socket.sendall(sent.frame)
            except ConnectionError:
                if not sent.has_answer:
                    raise  # else read on: the broker may have sent the reason, such as an alert of TLS
            if not sent.has_answer:
                return b""
            length = self._session.frame_bytes(self._receive(LENGTH_BYTES, give_up_at_s))
            return self._receive(length, give_up_at_s)
        except TimeoutError:
            raise NoAnswerError(f"{self._session.where} gave no answer in {limit_s:.3g} s") from None
        except ssl.SSLError as error:
            raise tls_failure(self._session.where, error) from None
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


def _left_s(give_up_at_s: float) -> float:
    """The time until then; a millisecond if it is over, since 0 would not wait at all."""
    return max(0.001, give_up_at_s - time.monotonic())


def _connected(address: Address, options: ClientOptions, timeout_s: float) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout=timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return (
                connected if options.tls is None else options.tls.wrap_socket(connected, server_hostname=address.host)
            )
        except BaseException:
            connected.close()
            raise
    except TimeoutError:
        raise UnreachableError(f"no connection to {address} within {timeout_s:.3g} s") from None
    except ssl.SSLError as error:
        raise tls_failure(str(address), error) from None
    except OSError as error:
        raise UnreachableError(f"no broker answers at {address}: {system_reason(error)}") from None


class BlockingCluster:
    """Connections to the brokers of one cluster, made when they are first needed. Not for several threads at once.

    bootstrap: addresses to begin with; each is tried. give_up_at_s: a limit of all requests, by `time.monotonic`.
    """

    def __init__(self, bootstrap: Sequence[Address], options: ClientOptions) -> None:
        self.routes = Routes()
        self.give_up_at_s = math.inf
        self._bootstrap = list(bootstrap)
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
        failure = UnreachableError("no broker is known")
        for place in self._places() if address is None else (address,):
            try:
                return self._send_to(request, place)
            except UnreachableError as error:
                self.routes.forget(place)
                if place in self._bootstrap:  # the next request goes to the others first
                    self._bootstrap.remove(place)
                    self._bootstrap.append(place)
                if isinstance(error, NoAnswerError):
                    raise
                failure = error
        raise failure

    def _places(self) -> list[Address]:
        """The brokers for a request that any can answer: first those to which a connection is open."""
        opened = [place for place, connection in self._connections.items() if not connection.is_closed]
        return opened + [place for place in self._bootstrap if place not in opened]

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
                return connection.send(request, self.give_up_at_s)
            except NoAnswerError:
                raise
            except UnreachableError:
                pass  # the broker was restarted, or closed the connection
        connection = self._connections[address] = BlockingConnection(address, self._options, self.give_up_at_s)
        return connection.send(request, self.give_up_at_s)
