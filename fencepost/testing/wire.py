"""The client of a test's helpers: `fencepost.client` with its errors in the words of tests.

It speaks to any Kafka, so that a test needs no client of its own for the helpers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fencepost.client.blocking import BlockingCluster
from fencepost.client.errors import ClusterError, NoAnswerError, NotServedError, UnreachableError
from fencepost.client.errors import RefusedError as RefusedByBroker
from fencepost.client.options import addresses_of
from fencepost.client.plans import Address
from fencepost.client.session import ClientOptions
from fencepost.client.view import CoordinatorKind, metadata_request
from fencepost.testing.errors import MisuseError, RefusedError

CLIENT_ID: Final = "fencepost.testing"
"""The client id of the helpers: faults do not concern it, and `requests` does not show it."""

TIMEOUT_S: Final = 30.0


def parse_bootstrap(bootstrap: str) -> tuple[Address, ...]:
    """The addresses in `host:port,host:port`. Raises MisuseError."""
    try:
        return tuple(addresses_of(bootstrap, default_port=None))
    except ValueError as error:
        raise MisuseError(str(error)) from None


class WireClient:
    """Connections to the brokers of one cluster. Not for several threads at once.

    All methods raise ConnectionError, TimeoutError, RefusedError, MisuseError (the broker does not serve the API).
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        options = ClientOptions(client_id=CLIENT_ID, connect_timeout_s=timeout_s, answer_timeout_s=timeout_s)
        self._cluster = BlockingCluster(parse_bootstrap(bootstrap), options)
        self._timeout_s = timeout_s

    def close(self) -> None:
        self._cluster.close()

    def call(self, request: Any, address: Address | None = None) -> Any:
        """Send a request and return the reply. Connects anew, once, if an older connection has broken: the request may
        be sent twice."""
        with _in_words_of_tests(request):
            return self._cluster.send(request, address)

    def coordinated(self, kind: CoordinatorKind, key: str, request: Any, error_of: Callable[[Any], int]) -> Any:
        """Send a request to the coordinator of a group or a transactional id; ask again while it is not ready.

        error_of: gives the error code of a reply.
        """
        with _in_words_of_tests(request):
            plan = self._cluster.routes.to_coordinator(kind, key, request, error_of)
            return self._cluster.run(plan, self._timeout_s)

    def metadata(self, topics: list[str] | None = None) -> Any:
        """Ask for topics, or all of them. Creates none."""
        return self.call(metadata_request(topics))


@contextmanager
def _in_words_of_tests(request: Any) -> Iterator[None]:
    name = type(request).__name__.removesuffix("Request")
    try:
        yield
    except NoAnswerError as error:
        raise TimeoutError(f"{name} got no reply: {error}") from None
    except UnreachableError as error:
        raise ConnectionError(f"{name} got no reply: {error}") from None
    except NotServedError:
        raise MisuseError(f"the broker does not serve {name}: use another") from None
    except RefusedByBroker as error:
        raise RefusedError(error.name, f"{name}: {error}") from None
    except ClusterError as error:
        raise ConnectionError(f"{name} failed: {error}") from None
