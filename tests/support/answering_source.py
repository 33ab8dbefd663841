"""A source for check-backs: an HTTP service that says what a test wants, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote


class AnsweringSource:
    """answer: `commit`, `abort` or `unknown`, or None to hang until the end. asked: the tokens, in order.

    hangs_after: how many questions it answers before it hangs; None: all.
    """

    def __init__(self, answer: str | None = "unknown") -> None:
        self.answer = answer
        self.hangs_after: int | None = None
        self.asked: list[str] = []
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._ended = threading.Event()
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                source.asked.append(unquote(self.path.removeprefix("/outcome/")))
                source._may_answer.wait()
                answer = source.answer
                if answer is None or (source.hangs_after is not None and len(source.asked) > source.hangs_after):
                    source._ended.wait()
                    return
                body = json.dumps({"outcome": answer}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """With `{token}`, as a resolver wants it."""
        return f"http://127.0.0.1:{self._server.server_port}/outcome/{{token}}"

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Answers wait for the end of the block, in which a transaction is prepared.

        It may be asked about as soon as it is open, and nobody can tell yet: a commit would refuse its later records.
        """
        self._may_answer.clear()
        try:
            yield
        finally:
            self._may_answer.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
