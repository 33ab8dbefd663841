"""A service that takes orders: each one is a row in a database and a record in a topic, or neither.

Run it again after a crash: it finishes what was decided, and drops what was not.
"""

import sqlite3
import sys

from fencepost.two_phase import Coordinator, SqliteLog, confluent_producer, start_session, transaction

TRANSACTIONAL_ID = "order-service-1"


def take_orders(servers, database, names):
    connection = sqlite3.connect(database)
    log = SqliteLog()  # with PostgreSQL: PostgresLog, and a connection of psycopg
    log.create(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT PRIMARY KEY)")
    connection.commit()

    with Coordinator(servers) as coordinator:
        producer = confluent_producer({"bootstrap.servers": servers, "transactional.id": TRANSACTIONAL_ID})
        generation = start_session(producer, coordinator, log, connection)  # finishes what an earlier session began
        taken = {name for (name,) in connection.execute("SELECT name FROM orders")}
        for name in names:
            if name in taken:
                continue
            with transaction(producer, coordinator, log, connection, generation=generation):
                connection.execute("INSERT INTO orders VALUES (?)", (name,))
                producer.produce("orders", name)
    connection.close()


if __name__ == "__main__":
    take_orders(sys.argv[1], sys.argv[2], sys.argv[3:])
