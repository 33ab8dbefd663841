"""A Faust application that counts words. Run it with: faust -A counting worker"""

from __future__ import annotations

import os

import faust

app = faust.App(
    "counting",
    broker=f"kafka://{os.environ.get('KAFKA', 'localhost:9092')}",
    store="memory://",
    topic_partitions=1,
    topic_disable_leader=True,
    web_enabled=False,
)
words = app.topic("words", value_type=bytes, value_serializer="raw")
counts = app.topic("counts", value_type=bytes, value_serializer="raw")
seen: dict[bytes, int] = {}


@app.agent(words)
async def count(stream) -> None:
    async for word in stream:
        seen[word] = seen.get(word, 0) + 1
        await counts.send(key=word, value=str(seen[word]).encode())
