"""A process of its own that changes a shared metadata store as its standard input says, and answers on its output."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import SharedSqliteMetadataStore


async def main(path: str) -> None:
    store = SharedSqliteMetadataStore(path)
    await store.open()
    _answer("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, *arguments = json.loads(line)
        _answer(await _do(store, name, arguments))
    await store.close()


async def _do(store: SharedSqliteMetadataStore, name: str, arguments: list[Any]) -> Any:
    match name:
        case "create_topic":
            topic, partition_count = arguments
            return await store.create_topic(TopicMetadata(topic, topic.encode().ljust(16, b"."), partition_count))
        case "add_to_document":
            key, amount, times = arguments
            for _ in range(times):
                await add_to_document(store, key, amount)
            return True
        case "hold":  # the write lock, and never let it go
            await store.transaction(_hold)
    raise ValueError(name)


async def add_to_document(store: SharedSqliteMetadataStore, key: str, amount: int) -> None:
    """Add a number to the one in a document, by compare-and-set."""
    while True:
        value, version = await store.read_versioned(key)
        if await store.compare_and_set(key, str(int(value or b"0") + amount).encode(), version):
            return


def _answer(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _hold(_: object) -> None:
    _answer("held")
    sys.stdin.read()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
