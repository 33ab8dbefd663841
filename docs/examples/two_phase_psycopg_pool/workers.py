"""Workers with one pool of psycopg: each has a transactional id of its own, and borrows a connection for each order."""

import threading

from fencepost.two_phase import Coordinator, PostgresLog, confluent_producer, start_session, transaction

LOG = PostgresLog()


class Worker:
    """Write orders in one thread. number: the worker's own, which it keeps over restarts."""

    def __init__(self, servers, pool, number):
        self._pool = pool
        self._coordinator = Coordinator(servers)
        self._producer = confluent_producer({"bootstrap.servers": servers, "transactional.id": f"worker-{number}"})
        with pool.connection() as connection:
            self._generation = start_session(self._producer, self._coordinator, LOG, connection)

    def take(self, name):
        about = (self._producer, self._coordinator, LOG)
        with (
            self._pool.connection() as connection,  # another one each time: the generation is in the database
            transaction(*about, connection, generation=self._generation),
        ):
            connection.execute("INSERT INTO orders VALUES (%s)", (name,))
            self._producer.produce("orders", name)

    def close(self):
        self._coordinator.close()
        self._producer.close()


def create_tables(pool):
    with pool.connection() as connection:
        LOG.create(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS orders (name text PRIMARY KEY)")


def take_orders(servers, pool, batches):
    """Write each list of orders in a thread of its own."""

    def work(number, names):
        worker = Worker(servers, pool, number)
        for name in names:
            worker.take(name)
        worker.close()

    threads = [threading.Thread(target=work, args=about) for about in enumerate(batches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
