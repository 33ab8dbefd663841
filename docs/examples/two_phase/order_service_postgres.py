"""The service of order_service.py with PostgreSQL: an order that is there already is neither written nor sent again."""

import sys

import psycopg

from fencepost.two_phase import Coordinator, PostgresLog, confluent_producer, start_session, transaction

TRANSACTIONAL_ID = "order-service-1"


def take_orders(servers, database, names):
    log = PostgresLog()
    with psycopg.connect(database) as connection, Coordinator(servers) as coordinator:
        log.create(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS orders (name text PRIMARY KEY)")
        connection.commit()

        producer = confluent_producer({"bootstrap.servers": servers, "transactional.id": TRANSACTIONAL_ID})
        generation = start_session(producer, coordinator, log, connection)
        for name in names:
            with transaction(producer, coordinator, log, connection, generation=generation):
                added = connection.execute("INSERT INTO orders VALUES (%s) ON CONFLICT DO NOTHING", (name,))
                if added.rowcount:
                    producer.produce("orders", name)


if __name__ == "__main__":
    take_orders(sys.argv[1], sys.argv[2], sys.argv[3:])
