"""Transfers between accounts with asyncpg and aiokafka: the balances and the record change together, or not at all."""

import json

from fencepost.two_phase import transaction_async


class Transfers:
    """A session of one task. connection: one of asyncpg's, such as one that a pool has lent for the session's time."""

    def __init__(self, producer, coordinator, log, connection, generation):
        self.about = (producer, coordinator, log, connection)
        self.producer = producer
        self.connection = connection
        self.generation = generation

    async def move(self, source, target, amount):
        """Move an amount. Raises ValueError without changes if the source has too little."""
        execute = self.connection.fetchval
        async with transaction_async(*self.about, generation=self.generation) as commit:
            left = await execute("UPDATE accounts SET euro = euro - $2 WHERE name = $1 RETURNING euro", source, amount)
            if left < 0:
                raise ValueError(f"{source} has too little")
            await execute("UPDATE accounts SET euro = euro + $2 WHERE name = $1 RETURNING euro", target, amount)
            about = {"from": source, "to": target, "euro": amount}
            await self.producer.send("transfers", json.dumps(about).encode(), headers=commit.headers)
