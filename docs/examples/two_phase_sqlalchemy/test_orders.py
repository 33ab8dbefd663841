"""The services: their objects are rows exactly if their records are there."""

import aiokafka
import pytest
from orders import AsyncOrderService, Base, Line, Order, OrderService
from sqlalchemy import create_engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fencepost.two_phase import (
    AsyncCoordinator,
    Coordinator,
    MisuseError,
    SqliteLog,
    confluent_producer,
    start_session,
    start_session_async,
)


@pytest.fixture
def engine(tmp_path):
    made = create_engine(f"sqlite:///{tmp_path}/orders.sqlite")  # with PostgreSQL: PostgresLog, and its URL
    Base.metadata.create_all(made)
    with Session(made) as session:
        SqliteLog().create(session)
        session.commit()
    yield made
    made.dispose()


def on_both_sides(fencepost, engine):
    with Session(engine) as session:
        rows = sorted(session.scalars(select(Order.name)))
    return rows, sorted(record.value.decode() for record in fencepost.records("orders"))


@pytest.fixture
def service(fencepost, engine):
    fencepost.topic("orders")
    servers = fencepost.bootstrap_servers
    producer = confluent_producer({"bootstrap.servers": servers, "transactional.id": "orders-1"})
    with Coordinator(servers) as coordinator, Session(engine) as session:
        generation = start_session(producer, coordinator, SqliteLog(), session)
        yield OrderService(producer, coordinator, SqliteLog(), session, generation)
    producer.close()


def test_an_order_and_its_lines_are_there_with_its_record(fencepost, engine, service):
    service.take("tea", ["green", "", "black"])
    assert on_both_sides(fencepost, engine) == (["tea"], ["tea"])
    with Session(engine) as session:
        assert sorted(session.scalars(select(Line.article))) == ["black", "green"]


def test_an_order_that_the_database_refuses_is_no_record(fencepost, engine, service):
    service.take("tea", [])
    with pytest.raises(IntegrityError):
        service.take("tea", [])
    service.take("milk", [])
    assert on_both_sides(fencepost, engine) == (["milk", "tea"], ["milk", "tea"])


def test_what_was_read_before_has_to_be_ended_first(fencepost, engine, service):
    service.session.scalars(select(Order)).all()
    with pytest.raises(MisuseError, match="a transaction in progress, perhaps begun by a SELECT"):
        service.take("tea", [])
    service.session.rollback()
    service.take("tea", [])
    assert on_both_sides(fencepost, engine) == (["tea"], ["tea"])


@pytest.mark.asyncio
async def test_the_service_on_asyncio_does_the_same(async_fencepost, engine):
    await async_fencepost.topic("orders")
    servers = async_fencepost.bootstrap_servers
    async_engine = create_async_engine(str(engine.url).replace("sqlite:", "sqlite+aiosqlite:"))
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="orders-1")
    async with AsyncCoordinator(servers) as coordinator, AsyncSession(async_engine) as session:
        generation = await start_session_async(producer, coordinator, SqliteLog(), session)
        service = AsyncOrderService(producer, coordinator, SqliteLog(), session, generation)
        await service.take("tea")
        with pytest.raises(IntegrityError):
            await service.take("tea")
        await service.take("milk")
    await producer.stop()
    await async_engine.dispose()
    with Session(engine) as session:
        assert sorted(session.scalars(select(Order.name))) == ["milk", "tea"]
    assert sorted(record.value.decode() for record in await async_fencepost.records("orders")) == ["milk", "tea"]
