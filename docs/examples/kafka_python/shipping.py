"""A worker that ships orders, and puts those that it cannot read aside, in a dead letter topic."""

from __future__ import annotations

import json
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

ORDERS, SHIPMENTS, DEAD_LETTERS = "orders", "shipments", "orders.dead"


class Worker:
    """One member of the group `shipping`."""

    def __init__(self, bootstrap_servers: str, name: str = "worker") -> None:
        self.producer = KafkaProducer(bootstrap_servers=bootstrap_servers, client_id=name, acks="all")
        self.consumer = KafkaConsumer(
            ORDERS,
            bootstrap_servers=bootstrap_servers,
            client_id=name,
            group_id="shipping",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    def work(self, *, timeout_ms: int = 500) -> int:
        """Handle what is there; return how many orders."""
        handled = 0
        for messages in self.consumer.poll(timeout_ms=timeout_ms).values():
            for message in messages:
                self._handle(message.value)
                handled += 1
        if handled:
            self.producer.flush()
            self.consumer.commit()
        return handled

    def _handle(self, order: bytes) -> None:
        try:
            parsed: dict[str, Any] = json.loads(order)
            shipment = {"to": parsed["to"]}
        except (ValueError, KeyError) as error:
            self.producer.send(DEAD_LETTERS, order, headers=[("reason", str(error).encode())])
        else:
            self.producer.send(SHIPMENTS, json.dumps(shipment).encode())

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()
