"""A schema registry in a thread: as much of Confluent's HTTP API as serializers use, and the moods of a bad one."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit


class Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has closed its connection; the standard error is that of a test."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class SchemaRegistry:
    """mood: `well`, `slow`, `garbage`, `huge`, `redirect`, `failing` or `wrong` (JSON of another shape).

    asked: the paths of all questions. user: a name and a password that it wants, if not empty.
    """

    def __init__(self, user: str = "") -> None:
        self.mood = "well"
        self.asked: list[str] = []
        self.user = user
        self.released = threading.Event()
        self._subjects: dict[str, list[dict[str, Any]]] = {}
        self._schemas: list[dict[str, Any]] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # an answer in one piece: in two, the second waits for an acknowledgement of the first

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                registry._serve(self, None)

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                registry._serve(self, json.loads(self.rfile.read(length)))

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """Register a schema; returns its id."""
        schema = {"schema": text, "schemaType": kind, "references": references or []}
        versions = self._subjects.setdefault(subject, [])
        known = next((one for one in self._schemas if one["content"] == schema), None)
        if known is None:
            known = {"id": len(self._schemas) + 1, "guid": str(uuid.uuid4()), "content": schema}
            self._schemas.append(known)
        if known not in versions:
            versions.append(known)
        found: int = known["id"]
        return found

    def guid(self, schema_id: int) -> str:
        found: str = self._schemas[schema_id - 1]["guid"]
        return found

    def _serve(self, handler: BaseHTTPRequestHandler, order: dict[str, Any] | None) -> None:
        self.asked.append(urlsplit(handler.path).path)
        status, body = 200, b""
        if self.mood == "slow":
            self.released.wait(30)
        if self.mood == "garbage":
            body = b'{"schema": "\\ud800"} <html>'
        elif self.mood == "wrong":
            body = b'{"schema": ["int"], "schemaType": 7, "references": {}}'
        elif self.mood == "huge":
            body = b'{"schema": "' + b"x" * (5 << 20) + b'"}'
        elif self.mood == "redirect":
            status = 302
        elif self.mood == "failing":
            status, body = 500, b'{"error_code": 50001, "message": "the store is gone"}'
        elif (
            self.user
            and handler.headers.get("Authorization") != "Basic " + base64.b64encode(self.user.encode()).decode()
        ):
            status = 401
        else:
            pieces = [unquote(one) for one in urlsplit(handler.path).path.strip("/").split("/")]
            status, found = self._answer(pieces, order)
            body = json.dumps(found).encode()
        handler.send_response(status)
        if status == 302:
            handler.send_header("Location", handler.path)
        handler.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        try:
            handler.wfile.write(body)
        except OSError:
            handler.close_connection = True  # who asked has heard enough

    def _answer(self, pieces: list[str], order: dict[str, Any] | None) -> tuple[int, Any]:
        missing = 404, {"error_code": 40403, "message": "Schema not found"}
        match pieces:
            case ["schemas", "ids", text, *rest]:
                found = next((one for one in self._schemas if str(one["id"]) == text), None)
            case ["schemas", "guids", text, *rest]:
                found = next((one for one in self._schemas if one["guid"] == text), None)
            case ["subjects", subject, "versions"] if order is not None:
                made = self.register(subject, order["schema"], order.get("schemaType", "AVRO"), order.get("references"))
                return 200, {"id": made, **self._schemas[made - 1]["content"], "guid": self._schemas[made - 1]["guid"]}
            case ["subjects", subject, *rest]:
                return self._of_subject(subject, rest, order) or missing
            case _:
                return missing
        if found is None:
            return missing
        if rest == ["versions"]:
            return 200, [
                {"subject": name, "version": versions.index(found) + 1}
                for name, versions in self._subjects.items()
                if found in versions
            ]
        return 200, {**found["content"], "guid": found["guid"]}

    def _of_subject(self, subject: str, rest: list[str], order: dict[str, Any] | None) -> tuple[int, Any] | None:
        versions = self._subjects.get(subject, [])
        if order is not None:
            wanted = {"schemaType": "AVRO", "references": [], **{k: v for k, v in order.items() if v is not None}}
            at = next((at for at, one in enumerate(versions) if one["content"]["schema"] == wanted["schema"]), None)
        elif rest[-1] == "latest":
            at = len(versions) - 1 if versions else None
        else:
            at = int(rest[-1]) - 1 if int(rest[-1]) <= len(versions) else None
        if at is None:
            return None
        found = versions[at]
        return 200, {
            "subject": subject,
            "version": at + 1,
            "id": found["id"],
            "guid": found["guid"],
            **found["content"],
        }


async def wait_until_asked(registry: SchemaRegistry, count: int) -> None:
    """Wait for that number of questions."""
    deadline_s = time.monotonic() + 20
    while len(registry.asked) < count:
        assert time.monotonic() < deadline_s, registry.asked
        await asyncio.sleep(0.005)
