"""A service that answers requests for payments with a receipt, in transactions."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


class Payments:
    """Reads `payments`, writes `receipts`; from `start` to `stop`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.consumer = AIOKafkaConsumer(
            "payments",
            bootstrap_servers=bootstrap_servers,
            group_id="payments",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, transactional_id="payments-1", transaction_timeout_ms=60_000
        )

    async def start(self) -> None:
        await self.producer.start()
        await self.consumer.start()

    async def stop(self) -> None:
        await self.consumer.stop()
        await self.producer.stop()

    async def handle_one(self) -> None:
        payment = await self.consumer.getone()
        async with self.producer.transaction():
            await self.producer.send("receipts", b"received " + (payment.value or b""))
            where = TopicPartition(payment.topic, payment.partition)
            await self.producer.send_offsets_to_transaction({where: payment.offset + 1}, "payments")
