"""PostgreSQL on a TCP port, for clients that cannot use the socket of the tests' server."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer

from psycopg.conninfo import conninfo_to_dict

CANCEL_REQUEST = (80877102).to_bytes(4)
"""The second word of such a connection, in PostgreSQL's protocol."""
TLS_REQUEST = (80877103).to_bytes(4)
"""The second word of the request for TLS."""


class PostgresPort(ThreadingTCPServer):
    """A port that is forwarded to a server's socket. path: of the socket. forwards_cancels: also requests to cancel.

    context: of TLS, which clients have to ask for then; None without TLS.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, host: str, *, forwards_cancels: bool, context: ssl.SSLContext | None = None) -> None:
        self.path = path
        self.context = context
        self.forwards_cancels = forwards_cancels
        self.open: set[socket.socket] = set()
        super().__init__((host, 0), _Connection)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def cut(self) -> None:
        """End all connections of clients. Their statements go on, as no request to cancel is forwarded."""
        for client in tuple(self.open):
            _end(client)


class _Connection(BaseRequestHandler):
    server: PostgresPort

    def handle(self) -> None:
        if self.server.context is not None:
            if self.request.recv(8, socket.MSG_WAITALL)[4:] != TLS_REQUEST:
                return
            self.request.sendall(b"S")
            self.request = self.server.context.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
            try:
                self.request.do_handshake()
            except OSError:  # the client refuses the certificate
                self.request.close()
                return
        elif self.request.recv(8, socket.MSG_PEEK | socket.MSG_WAITALL)[4:] == CANCEL_REQUEST and not (
            self.server.forwards_cancels
        ):
            return
        self.server.open.add(self.request)
        with socket.socket(socket.AF_UNIX) as upstream:
            try:
                upstream.connect(self.server.path)
            except OSError:  # the server is not there
                _end(self.request)
                return
            back = threading.Thread(target=_forward, args=(upstream, self.request), daemon=True)
            back.start()
            _forward(self.request, upstream)
            back.join()
        if self.server.context is not None:
            self.request.close()  # not the socket that the server closes
        self.server.open.discard(self.request)


@contextmanager
def postgres_over_tcp(
    uri: str, host: str = "127.0.0.1", *, forwards_cancels: bool = False, context: ssl.SSLContext | None = None
) -> Iterator[PostgresPort]:
    """Forward connections to the server of a URI, whose host is the directory of its socket. host: to listen on.

    context: see `PostgresPort`.
    """
    about = conninfo_to_dict(uri)
    path = f"{about['host']}/.s.PGSQL.{about.get('port') or 5432}"
    with PostgresPort(path, host, forwards_cancels=forwards_cancels, context=context) as forwarder:
        thread = threading.Thread(target=forwarder.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield forwarder
        finally:
            forwarder.shutdown()
            thread.join()
            forwarder.cut()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    """Forward until the source ends, or one of the two is lost; then end both."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    _end(source)
    _end(sink)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
