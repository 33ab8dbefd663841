"""An S3-compatible server of the tests' own, and trouble that it can be put into."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from fencepost.broker.cluster.objects.location import ObjectLocation

_numbers = count(1)


class ObjectServer:
    """endpoint: its URL.

    refused_status: where it is not None, every request is answered with this HTTP status.
    delay_s:        before each request is looked at.
    undeletable:    objects that are not removed, by their keys.
    requests:       method and path of those that came, in order.
    """

    def __init__(self, server: Any, directory: Path) -> None:
        self.endpoint = "http://{}:{}".format(*server.server_address[:2])
        self.directory = directory
        self.refused_status: int | None = None
        self.delay_s = 0.0
        self.undeletable: set[str] = set()
        self.requests: list[tuple[str, str]] = []

    def make_bucket(self, prefix: str = "") -> ObjectLocation:
        """Create an empty bucket."""
        name = f"bucket-{next(_numbers)}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
        return ObjectLocation(
            name, prefix, endpoint=self.endpoint, access_key_id="tests", secret_access_key="not checked"
        )

    def files(self, location: ObjectLocation) -> dict[str, bytes]:
        """The objects of a bucket by their whole names, read behind the server's back."""
        root = self.directory / location.bucket
        while True:
            with contextlib.suppress(FileNotFoundError):  # an object was removed meanwhile
                return {
                    path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
                }

    def heal(self) -> None:
        """End all trouble, and forget the requests."""
        self.refused_status, self.delay_s = None, 0.0
        self.requests.clear()


@contextmanager
def object_server(directory: Path, host: str = "127.0.0.1") -> Iterator[ObjectServer]:
    """Serve buckets from a directory until the block ends. host: to listen on."""
    import localbucket

    directory.mkdir(exist_ok=True)

    class Handler(localbucket.S3Handler):  # type: ignore[misc]
        data_root = directory

        def _dispatch(self, action: Any) -> None:
            served.requests.append((self.command, self.path))
            time.sleep(served.delay_s)
            if served.refused_status is not None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(served.refused_status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if served.undeletable and self.command == "POST" and self.path.endswith("?delete"):
                self._delete_many(re.findall("<Key>(.*?)</Key>", self._read_body().decode()))
                return
            super()._dispatch(action)

        def _delete_many(self, keys: list[str]) -> None:
            """As S3: each object that may be removed is, and the answer names the others."""
            bucket = directory / self.path.strip("/").partition("?")[0]
            for key in set(keys) - served.undeletable:
                (bucket / key).unlink(missing_ok=True)
            told = "".join(
                f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
                if key in served.undeletable
                else f"<Deleted><Key>{key}</Key></Deleted>"
                for key in keys
            )
            answer = f"<DeleteResult>{told}</DeleteResult>".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name is the base class's
            pass

    server = localbucket.ThreadingHTTPServer((host, 0), Handler)
    served = ObjectServer(server, directory)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
