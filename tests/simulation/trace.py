"""What passed between clients and brokers, in order: for checkers, and for people who look into a failing seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Exchange:
    """One request and what became of it. response: None while there is none, and for ever when the connection broke."""

    number: int
    client: str
    node_id: int
    request: Any
    version: int
    sent_s: float
    response: Any = None
    answered_s: float | None = None

    def answered(self, response: Any, now_s: float) -> None:
        self.response = response
        self.answered_s = now_s

    def __str__(self) -> str:
        sent = f"{self.sent_s:9.4f} {self.client} -> {self.node_id} v{self.version} {self.request}"
        return f"{sent} => {self.response}"


@dataclass(frozen=True)
class Event:
    """Something that happened to a broker or the network, such as a crash."""

    number: int
    at_s: float
    text: str

    def __str__(self) -> str:
        return f"{self.at_s:9.4f} {self.text}"


@dataclass
class Trace:
    """Everything so far. entries: in the order in which requests were sent and events happened."""

    time: Any
    entries: list[Exchange | Event] = field(default_factory=list)

    def sent(self, client: str, node_id: int, request: Any, version: int) -> Exchange:
        exchange = Exchange(len(self.entries), client, node_id, request, version, self.time())
        self.entries.append(exchange)
        return exchange

    def happened(self, text: str) -> None:
        self.entries.append(Event(len(self.entries), self.time(), text))

    @property
    def exchanges(self) -> list[Exchange]:
        return [entry for entry in self.entries if isinstance(entry, Exchange)]
