"""A web service that publishes one message for each request: `python -m … oncemq | outbox | faststream PORT`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI
from faststream.rabbit import RabbitBroker
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import oncemq
from benchmarks.peers.environment import POSTGRESQL, QUEUE, RABBITMQ, told
from benchmarks.peers.publishing.orders import Order
from benchmarks.peers.publishing.with_oncemq import FILE, TOPIC
from oncemq import AsyncAppPublisher

PATH = "/orders"


def oncemq_web() -> FastAPI:
    """Answer when the broker has confirmed the message."""
    publisher = oncemq.open_async_publisher(FILE)
    web = FastAPI(lifespan=publisher.lifespan)

    @web.post(PATH)
    async def publish(order: Order, to: Annotated[AsyncAppPublisher, Depends(publisher)]) -> str:
        return await to.publish(TOPIC, order)

    return web


def outbox_web() -> FastAPI:
    """Answer when the request's transaction, which stores the message, has committed."""
    publisher = oncemq.open_async_publisher(FILE)
    web = FastAPI(lifespan=publisher.lifespan)
    engine = create_async_engine(make_url(told(POSTGRESQL)), pool_size=20)

    @web.post(PATH)
    async def publish(order: Order, to: Annotated[AsyncAppPublisher, Depends(publisher)]) -> str:
        async with AsyncSession(engine) as session, session.begin():
            return await to.publish(TOPIC, order, session=session)

    return web


def faststream_web() -> FastAPI:
    """Answer when the broker has confirmed the message."""
    broker = RabbitBroker(told(RABBITMQ), logger=None)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with broker:
            yield

    web = FastAPI(lifespan=lifespan)

    @web.post(PATH)
    async def publish(order: Order) -> str:
        await broker.publish(order, told(QUEUE), persist=True, mandatory=True)
        return "confirmed"

    return web


WEBS = {"oncemq": oncemq_web, "outbox": outbox_web, "faststream": faststream_web}

if __name__ == "__main__":
    uvicorn.run(WEBS[sys.argv[1]](), port=int(sys.argv[2]), log_level="warning")
