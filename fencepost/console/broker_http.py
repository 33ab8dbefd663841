"""The HTTP ports of brokers, which have data that Kafka's protocol lacks: the client of a producer id.

Optional. Without it, or with a broker that is not Fencepost, pages name the missing data.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError
from fencepost.diagnosis.stuck import Client
from fencepost.protocol.checked_json import parse

TIMEOUT_S: Final = 3.0
LONGEST_ANSWER_BYTES: Final = 8 << 20
NOT_PERMITTED: Final = "your user has no right to describe the cluster (DESCRIBE on CLUSTER)"
NOT_GIVEN: Final = "only the HTTP port of a Fencepost broker says it: name that with --broker-http"


class HttpFailedError(Exception):
    """The HTTP port did not answer, or not with JSON; the message is the reason."""


@dataclass(frozen=True)
class FoundClient:
    """The client behind a producer id, or why it is not known."""

    client: Client | None
    missing: str = ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token goes to the address that the operator named, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class BrokerHttp:
    """urls: `http://127.0.0.1:9644`, or those of several brokers, separated by commas; None for none. token: sent as a
    bearer token. person: whose right to describe the cluster is asked for first."""

    def __init__(self, urls: str | None, token: str | None = None, person: Cluster | None = None) -> None:
        self.urls = [url.strip().rstrip("/") for url in (urls or "").split(",") if url.strip()]
        self._token = token
        self._person = person
        self._opener = urllib.request.build_opener(_NoRedirects)

    def for_person(self, cluster: Cluster) -> BrokerHttp:
        """The same ports for a user of the cluster. They answer to the console's token, so that user's own right is
        asked for first.
        """
        return BrokerHttp(",".join(self.urls), self._token, cluster)

    async def get(self, path: str) -> list[Any]:
        """The JSON objects at a path of each broker that answers. Raises HttpFailedError if none does, or if the user
        may not describe the cluster.
        """
        if not self.urls:
            raise HttpFailedError(NOT_GIVEN)
        if self._person is not None:
            try:
                may_describe = await self._person.may_describe_cluster()
            except ClusterError as error:
                raise HttpFailedError(str(error)) from None
            if not may_describe:
                raise HttpFailedError(NOT_PERMITTED)
        addresses = [f"{url}{path}" for url in self.urls]
        asked = await asyncio.gather(
            *(asyncio.to_thread(self._get, address) for address in addresses), return_exceptions=True
        )
        failures = [one for one in asked if isinstance(one, BaseException)]
        for failure in failures:
            if len(failures) == len(asked) or not isinstance(failure, HttpFailedError):
                raise failure
        return [one for one in asked if isinstance(one, dict)]

    def _get(self, address: str) -> Any:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(address, headers=headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return parse(answer.read(LONGEST_ANSWER_BYTES), most_bytes=LONGEST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise HttpFailedError(f"the broker's HTTP port answered {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise HttpFailedError(f"the broker's HTTP port does not answer: {error}") from None

    async def client_of(self, producer_id: int) -> FoundClient:
        """The client behind a producer id."""
        try:
            found = await self.get(f"/v1/producers/{producer_id}")
        except HttpFailedError as error:
            return FoundClient(None, str(error))
        clients = [client for one in found if (client := read_client(one.get("client"))) is not None]
        if not clients:
            return FoundClient(None, "the broker has not seen it since its start")
        # Several brokers may have served it: the newest connection names the present one.
        return FoundClient(max(clients, key=lambda one: (one.is_connected is True, one.last_seen_ms)))

    async def offline_reason(self, topic: str, partition: int) -> str | None:
        """Why a partition is offline, as its broker says; None if it does not."""
        try:
            found = await self.get(f"/v1/partitions/{quote(topic, safe='')}/{partition}")
        except HttpFailedError:
            return None
        reasons = [one.get("offline_reason") for one in found]
        return next((reason for reason in reasons if isinstance(reason, str) and reason), None)


def read_client(found: Any) -> Client | None:
    """Read a client as the HTTP port describes it; None if it describes none."""
    if not isinstance(found, dict) or not found:
        return None
    host, port = str(found.get("address") or ""), found.get("port")
    software = f"{found.get('software_name') or ''} {found.get('software_version') or ''}".strip()
    is_connected, last_seen_ms = found.get("is_connected"), found.get("last_seen_ms")
    return Client(
        address=f"{host}:{port}" if host and port else host,
        client_id=str(found.get("client_id") or ""),
        software=software,
        principal=str(found.get("principal") or ""),
        is_connected=is_connected if isinstance(is_connected, bool) else None,
        last_seen_ms=last_seen_ms if type(last_seen_ms) is int else -1,
    )
