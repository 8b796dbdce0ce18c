"""Write and read a little from an event loop, as a web service does. Every wait has a deadline.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/asyncio_service.py

Needs a running RocketMQ with the topic: ``pyspark-rocketmq topic create ExampleOrders``.
"""

from __future__ import annotations

import asyncio
import os

from pyspark_rocketmq.client import AsyncClient, AsyncProducer, AsyncPullConsumer, OutgoingMessage

TOPIC = "ExampleOrders"


async def place_order(producer: AsyncProducer, number: int) -> str:
    """Handle a request that writes. When it returns, the broker has stored the order."""
    result = await producer.send(OutgoingMessage(TOPIC, f"order {number}".encode(), keys=f"order-{number}"))
    return result.msg_id


async def last_orders(client: AsyncClient, consumer: AsyncPullConsumer, most: int) -> list[str]:
    """Handle a request that reads: the last messages of each queue."""
    ends = await client.max_offsets(await client.read_queues(TOPIC))
    pulls = (consumer.pull(queue, "*", max(0, end - most), most) for queue, end in ends.items())
    return [message.body.decode() for pull in await asyncio.gather(*pulls) for message in pull.messages]


async def main() -> None:
    """Serve a hundred requests, all at once."""
    async with AsyncClient(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")) as client:
        producer, consumer = AsyncProducer(client), AsyncPullConsumer("example_service", client=client)
        ids = await asyncio.gather(*(place_order(producer, number) for number in range(100)))
        print(f"{len(ids)} orders are stored")
        async with asyncio.timeout(5):  # a canceled call leaves the client usable
            print(f"some of the last: {(await last_orders(client, consumer, 2))[:4]}")


if __name__ == "__main__":
    asyncio.run(main())
