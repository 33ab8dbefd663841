"""Orders: a row and a record, or neither. One process has one session, which its threads take in turn."""

import threading

from django.db import connection
from django.db import transaction as django

from fencepost.two_phase import (
    Coordinator,
    Fenced,
    InDoubtError,
    NeedsRecovery,
    SqliteLog,
    confluent_producer,
    start_session,
    transaction,
)

LOG = SqliteLog()


class Orders:
    """transactional_id: one of this process alone, which it keeps over restarts."""

    def __init__(self, servers, transactional_id):
        self._config = {"bootstrap.servers": servers, "transactional.id": transactional_id}
        self._coordinator = Coordinator(servers)
        self._turn = threading.Lock()
        self._producer = None
        self._generation = 0

    def place(self, name, articles=()):
        """Write an order. Not inside atomic(): take a view out of ATOMIC_REQUESTS with non_atomic_requests."""
        from shop.models import Line, Order

        with self._turn:
            self._start()
            try:
                with transaction(self._producer, self._coordinator, LOG, connection, generation=self._generation):
                    order = Order.objects.create(name=name)
                    for article in articles:
                        try:
                            with django.atomic():  # a savepoint: a line that is refused leaves the order
                                Line.objects.create(order=order, article=check(article))
                        except ValueError:
                            continue
                    self._producer.produce("orders", name)
            except (NeedsRecovery, InDoubtError, Fenced):
                self._producer = None  # the next order starts another session, which finds out
                raise

    def _start(self):
        if self._producer is None:
            producer = confluent_producer(self._config)
            self._generation = start_session(producer, self._coordinator, LOG, connection)
            self._producer = producer

    def close(self):
        self._coordinator.close()
        if self._producer is not None:
            self._producer.close()


def check(article):
    if not article:
        raise ValueError("an article without a name")
    return article
