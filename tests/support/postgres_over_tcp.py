"""PostgreSQL on a port of the loopback address, for clients that cannot use the socket of the tests' server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer

from psycopg.conninfo import conninfo_to_dict


class _Forwarder(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def postgres_over_tcp(uri: str) -> Iterator[int]:
    """Forward connections to the server of a URI, whose host is the directory of its socket. Yields the port."""
    about = conninfo_to_dict(uri)
    path = f"{about['host']}/.s.PGSQL.{about.get('port') or 5432}"

    class Connection(BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as server:
                server.connect(path)
                back = threading.Thread(target=_forward, args=(server, self.request), daemon=True)
                back.start()
                _forward(self.request, server)
                back.join()

    with _Forwarder(("127.0.0.1", 0), Connection) as forwarder:
        thread = threading.Thread(target=forwarder.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield forwarder.server_address[1]
        finally:
            forwarder.shutdown()
            thread.join()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    """Forward until the source ends, or one of the two is lost; then end both ways."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
