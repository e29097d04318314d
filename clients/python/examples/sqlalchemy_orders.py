"""Rows of SQLAlchemy that Snowbank numbers, from several processes.

pip install sqlalchemy snowbank-client
SNOWBANK=ids-1:7660,ids-2:7660 python sqlalchemy_orders.py sqlite:///orders.sqlite3
"""

import multiprocessing
import os
import sys

from sqlalchemy import BigInteger, Engine, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from snowbank_client import Client

ids = Client(os.environ.get("SNOWBANK", "127.0.0.1:7660").split(",")).ids()


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """An order of the shop."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, autoincrement=False, default=ids.next
    )
    item: Mapped[str]


def connect(url: str) -> Engine:
    """Returns the database."""
    return create_engine(url, connect_args={"timeout": 20} if url.startswith("sqlite") else {})


def buy(url: str, count: int) -> None:
    """Makes orders, as one process of several."""
    engine = connect(url)
    with Session(engine) as session:
        session.add_all(Order(item="tea") for _ in range(count))
        session.commit()
    engine.dispose()


def main(url: str) -> None:
    """Makes orders in five processes, and prints how many the table has."""
    Base.metadata.create_all(connect(url))
    buy(url, 1)
    # A forked child has a copy of the parent's buffer, and begins with an empty one of its own.
    children = [multiprocessing.Process(target=buy, args=(url, 1_000)) for _ in range(4)]
    for child in children:
        child.start()
    buy(url, 1_000)
    for child in children:
        child.join()
    with Session(connect(url)) as session:
        print(session.scalar(select(func.count(Order.id))), "orders")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///orders.sqlite3")
