"""A client that knows the control API from its document only, and holds each answer against it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from jsonschema import Draft202012Validator

from fencepost.testing.http.program import make_config


class Described:
    """Calls operations by their names. called: name and status of all answers, each valid by the document."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.document: dict[str, Any] = client.get("/openapi.json").json()
        self.called: set[tuple[str, int]] = set()

    def operations(self) -> dict[str, tuple[str, str, dict[str, Any]]]:
        """Method, path and description of each operation, by name."""
        return {
            operation["operationId"]: (method, path, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        }

    def validator(self, schema: dict[str, Any]) -> Draft202012Validator:
        return Draft202012Validator({**schema, "components": self.document["components"]})

    def send(self, name: str, /, **arguments: Any) -> httpx.Response:
        """Call an operation with its arguments, those of the path among them; the answer is valid by the document."""
        method, path, operation = self.operations()[name]
        in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        left = {key: value for key, value in arguments.items() if key not in in_path}
        address = path.format(**{key: arguments[key] for key in in_path})
        if method == "post":
            response = self.client.post(address, json=left)
        else:
            query = {key: str(value).lower() if isinstance(value, bool) else value for key, value in left.items()}
            response = self.client.request(method, address, params=query)
        self.check(name, response)
        return response

    def check(self, name: str, response: httpx.Response) -> None:
        """Raises if an answer is not as the document says."""
        described = self.operations()[name][2]["responses"][str(response.status_code)]
        if "$ref" in described:
            described = self.document["components"]["responses"][described["$ref"].rpartition("/")[2]]
        self.validator(described["content"]["application/json"]["schema"]).validate(response.json())
        assert response.headers["content-type"] == "application/json"
        self.called.add((name, response.status_code))

    def call(self, name: str, /, **arguments: Any) -> Any:
        """As `send`, for an operation that succeeds; returns its result."""
        response = self.send(name, **arguments)
        assert response.status_code in (200, 201), response.text
        return response.json()

    def refusal(self, name: str, /, **arguments: Any) -> tuple[int, str, str]:
        """Status, kind and sentence of an operation that is refused."""
        response = self.send(name, **arguments)
        assert response.status_code >= 400, response.text
        return response.status_code, response.json()["error"], response.json()["message"]


@contextmanager
def open_client() -> Iterator[httpx.Client]:
    """A client of an API without brokers, which is served in a thread while the context lasts."""
    server = uvicorn.Server(make_config("127.0.0.1"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=server.run, args=([listener],))
        serving.start()
        try:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx.Client(base_url=address, timeout=120, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            serving.join()
