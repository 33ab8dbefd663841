"""One request for a page: its session, its cluster, and the possible results of a page function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request

from fencepost.client.cluster import Cluster
from fencepost.console.broker_http import BrokerHttp
from fencepost.console.options import ClusterOptions
from fencepost.console.reading.sharing import Readers, Reads
from fencepost.console.roles import Role
from fencepost.console.values import Values
from fencepost.console.web.listing import Listing
from fencepost.console.web.roles import needed_role
from fencepost.console.web.sessions import Session
from fencepost.protocol.checked_json import text_or_base64


class NotFoundError(Exception):
    """There is no such page, or nothing of that name."""


class BadFormError(Exception):
    """A person's input cannot be used; the message has the reason and the right form."""


@dataclass(frozen=True)
class Page:
    """A page to show. data: for the template, and as JSON for programs. age_s: the age of its data, in seconds."""

    template: str
    title: str
    data: Mapping[str, Any] = field(default_factory=dict)
    menu: str = ""
    refreshes: bool = False
    status: int = 200
    age_s: float = 0.0


@dataclass(frozen=True)
class Visit:
    """A request of somebody who may use the cluster. options: of this cluster."""

    request: Request
    session: Session
    cluster: Cluster
    http: BrokerHttp
    options: ClusterOptions
    values: Values
    readers: Readers

    @property
    def reads(self) -> Reads:
        """The answers that this person's user shares with all who look as the same user."""
        return self.readers.of(self.cluster)

    @property
    def cluster_name(self) -> str:
        """The cluster's name in this console."""
        return self.options.name

    @property
    def role(self) -> Role:
        return self.session.role

    @property
    def person(self) -> str | None:
        """Who makes the request, for the audit log: None if nobody logged in."""
        person = self.session.browser.person
        return self.cluster.user if person is None else person.name

    def may(self, change: str) -> bool:
        """Whether the person's role allows a change."""
        return self.role.includes(needed_role(change))

    def parameter(self, name: str, default: str = "") -> str:
        """A parameter of the address."""
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int) -> int:
        """A whole number of the address. Raises BadFormError."""
        text = self.parameter(name).strip().replace(",", "")
        if not text:
            return default
        return whole_number(text, name)

    def transactional_id(self) -> str:
        """The `id` of the address. Raises NotFoundError if it has none."""
        if not (named := self.parameter("id")):
            raise NotFoundError("the address names no transactional id: it ends with ?id=…")
        return named

    @property
    def parameters(self) -> Mapping[str, str]:
        return dict(self.request.query_params)

    def place(self) -> tuple[str, int]:
        """Topic and partition in the path. Raises NotFoundError."""
        topic, partition = self.request.path_params["topic"], self.request.path_params["partition"]
        if not partition.isascii() or not partition.isdigit() or len(partition) > 9:
            raise NotFoundError(f"{partition!r} is no partition of {topic}")
        return topic, int(partition)


def whole_number(text: str, name: str, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """Read a whole number. Raises BadFormError."""
    try:
        number = int(text)
    except ValueError:
        raise BadFormError(f"{name} must be a whole number, not {text!r}") from None
    if not least <= number <= most:
        raise BadFormError(f"{name} must be from {least:,} to {most:,}, not {number:,}")
    return number


def path(*pieces: str | int) -> str:
    """An address from pieces, each quoted: `path("topics", name)`."""
    return "/" + "/".join(quote(str(piece), safe="") for piece in pieces)


def with_query(address: str, **parameters: str | int) -> str:
    """An address with parameters."""
    return f"{address}?{urlencode({name: str(value) for name, value in parameters.items()})}"


def as_json(value: Any) -> str:
    """The data of a page as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=1)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return text_or_base64(bytes(value))
    if isinstance(value, Listing):
        return {
            "total": value.total,
            "matched": value.matched,
            "page": value.page,
            "pages": value.pages,
            "rows": [_plain(row) for row in value.rows],
        }
    if is_dataclass(value):
        found = {one.name: getattr(value, one.name) for one in fields(value)}
        found = {name: one for name, one in found.items() if not callable(one)}
        computed = [name for name, kind in vars(type(value)).items() if isinstance(kind, property)]
        return {name: _plain(one) for name, one in found.items()} | {
            name: _plain(getattr(value, name)) for name in computed
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, Mapping):
        return {_key(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value]


def _key(key: Any) -> str:
    return "-".join(map(str, key)) if isinstance(key, tuple) else str(key)
