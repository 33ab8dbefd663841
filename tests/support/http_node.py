"""A node with an HTTP listener, in the test's own process, and raw connections to it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from fencepost.broker.node import Node
from tests.broker.test_node import running

LISTENER = "127.0.0.1:0"
VIEWER, OPERATOR = "token of a viewer", "token of an operator"


class HttpNode(NamedTuple):
    """A started node, and an HTTP client of it."""

    node: Node
    client: httpx.AsyncClient

    async def get(self, path: str, *, token: str = "", **headers: str) -> httpx.Response:
        return await self.client.get(path, headers=_with(headers, token))

    async def json(self, path: str) -> Any:
        response = await self.client.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, content: Any = None, *, token: str = OPERATOR, **headers: str) -> httpx.Response:
        return await self.client.post(path, json={} if content is None else content, headers=_with(headers, token))


def _with(headers: Mapping[str, str], token: str) -> dict[str, str]:
    found = {name.replace("_", "-"): value for name, value in headers.items()}
    return {**found, "Authorization": f"Bearer {token}"} if token else found


def token_file(directory: Path) -> Path:
    """A file with the tokens VIEWER and OPERATOR."""
    path = directory / "tokens"
    lines = [
        f"{name}:{role}:{hashlib.sha256(token.encode()).hexdigest()}"
        for name, role, token in (("board", "viewer", VIEWER), ("anna", "operator", OPERATOR))
    ]
    path.write_text("# who may ask\n\n" + "\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


@asynccontextmanager
async def http_node(directory: Path, **chosen: Any) -> AsyncIterator[HttpNode]:
    """A node with an HTTP listener and tokens."""
    os.makedirs(directory, exist_ok=True)
    settings = {"fencepost_http_listener": LISTENER, "fencepost_http_token_file": str(token_file(directory))}
    async with running(directory / "data", **(settings | chosen)) as node:
        assert node.http_address is not None
        host, port = node.http_address
        base = f"http://127.0.0.1:{port}" if host == "0.0.0.0" else f"http://{host}:{port}"
        async with httpx.AsyncClient(base_url=base, timeout=30) as client:
            yield HttpNode(node, client)


class RawHttp:
    """One connection that sends bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, content: bytes) -> None:
        self.writer.write(content)

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by lower-case name, and the body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(status.split()[1]), headers, body

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def raw_http(node: Node, *, host: str = "127.0.0.1") -> AsyncIterator[RawHttp]:
    """A connection to the HTTP listener, from an address of this machine."""
    assert node.http_address is not None
    reader, writer = await asyncio.open_connection(*node.http_address, local_addr=(host, 0))
    try:
        yield RawHttp(reader, writer)
    finally:
        writer.close()
