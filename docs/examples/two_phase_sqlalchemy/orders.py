"""Orders with SQLAlchemy's ORM, in a service that blocks and in one on asyncio: a row and a record, or neither."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from fencepost.two_phase import transaction, transaction_async


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    name: Mapped[str] = mapped_column(primary_key=True)


class Line(Base):
    __tablename__ = "lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_name: Mapped[str] = mapped_column(ForeignKey("orders.name"))
    article: Mapped[str]


class OrderService:
    """Write orders. session: a Session of its own, which nobody else commits."""

    def __init__(self, producer, coordinator, log, session, generation):
        self.producer = producer
        self.about = (producer, coordinator, log, session)
        self.session = session
        self.generation = generation

    def take(self, name, articles):
        with transaction(*self.about, generation=self.generation):
            self.session.add(Order(name=name))
            for article in articles:
                try:
                    with self.session.begin_nested():  # a savepoint: a line that is refused leaves the order
                        self.session.add(Line(order_name=name, article=check(article)))
                except ValueError:
                    continue
            self.producer.produce("orders", name)


class AsyncOrderService:
    """Write orders. session: an AsyncSession of its own, which nobody else commits."""

    def __init__(self, producer, coordinator, log, session, generation):
        self.producer = producer
        self.about = (producer, coordinator, log, session)
        self.session = session
        self.generation = generation

    async def take(self, name):
        async with transaction_async(*self.about, generation=self.generation):
            self.session.add(Order(name=name))
            await self.producer.send("orders", name.encode())


def check(article):
    if not article:
        raise ValueError("an article without a name")
    return article
