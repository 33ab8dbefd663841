"""kafka-python leaves the socket of a refused connection, as while a broker restarts, to the garbage collector.

Which test of the process that would hit, long after, is a matter of luck: here it is closed where it is refused. A
`conftest.py` whose tests drive kafka-python while a broker is away imports the fixture.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.net.inet import KafkaNetSocket


@pytest.fixture(scope="session", autouse=True)
def refused_connections_are_closed() -> Iterator[None]:
    connect = KafkaNetSocket.sock_connect

    async def connect_or_close(self: KafkaNetSocket, net: object, sock: socket.socket, *args: Any, **kw: Any) -> object:
        try:
            return await connect(self, net, sock, *args, **kw)
        except BaseException:
            sock.close()
            raise

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(KafkaNetSocket, "sock_connect", connect_or_close)
        yield
