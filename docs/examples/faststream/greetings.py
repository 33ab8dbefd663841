"""A FastStream application that answers names with greetings."""

from __future__ import annotations

import os

from faststream import FastStream
from faststream.kafka import KafkaBroker

broker = KafkaBroker(os.environ.get("KAFKA", "localhost:9092"))
app = FastStream(broker)


@broker.subscriber("names", group_id="greetings", auto_offset_reset="earliest")
@broker.publisher("greetings")
async def greet(name: str) -> str:
    return f"Hello, {name}!"
