"""An exactly-once loop: each order becomes a bill, once, whatever crashes."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer

# After a restart of the broker, librdkafka 2.16 would wait in send_offsets_to_transaction for ever (librdkafka#5511).
RECOVERY = {"metadata.recovery.strategy": "none"}


class Billing:
    """Reads `orders` as the group `billing` and writes `bills`; offsets and bills are committed together."""

    def __init__(self, bootstrap_servers: str, instance: str = "billing-1") -> None:
        self.consumer = Consumer(
            {
                **RECOVERY,
                "bootstrap.servers": bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.producer = Producer(
            {
                **RECOVERY,
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": instance,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self.producer.list_topics(timeout=10)  # connects; init_transactions would wait half a second for it
        self.producer.init_transactions(10)
        self.consumer.subscribe(["orders"])

    def bill_next(self, timeout_s: float = 10.0) -> bool:
        """Bill one order in one transaction; False if none came. Raises KafkaException: end then, and start again."""
        order = self.consumer.poll(timeout_s)
        if order is None:
            return False
        if order.error():
            raise KafkaException(order.error())
        self.producer.begin_transaction()
        self.producer.produce("bills", b"bill for " + (order.value() or b""), order.key())
        self.producer.send_offsets_to_transaction(
            self.consumer.position(self.consumer.assignment()), self.consumer.consumer_group_metadata(), 10
        )
        self.producer.commit_transaction(30)
        return True

    def close(self) -> None:
        self.consumer.close()
