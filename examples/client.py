"""The client without Spark: create a topic, send, get offsets, read, commit.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/client.py

Needs a running RocketMQ: ``pyspark-rocketmq cluster start`` starts one.
"""

from __future__ import annotations

import json
import os
import time

from pyspark_rocketmq.client import (
    Admin,
    Client,
    OutgoingMessage,
    Producer,
    PullConsumer,
    PullStatus,
    SendPipeline,
    encode_many,
)

TOPIC = "ExampleOrders"
GROUP = "example_report"


def main() -> None:
    """Run the tour."""
    with Client(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")) as client:
        admin = Admin(client)
        admin.create_topic(TOPIC, queues=4)

        producer = Producer(client)
        result = producer.send(order(0))
        print(f"one order is at {result.queue}, offset {result.queue_offset}, id {result.msg_id}")

        # A thousand more in batches of 50, with eight batches in flight, without waiting for each response.
        outcomes = []
        with SendPipeline(producer, max_in_flight=8) as pipeline:
            for start in range(1, 1001, 50):
                batch = [order(number) for number in range(start, start + 50)]
                outcomes += pipeline.submit(encode_many(batch, producer.ids))
            outcomes += pipeline.flush()
        failed = [outcome.error for outcome in outcomes if outcome.error is not None]
        print(
            f"{sum(outcome.outgoing.count for outcome in outcomes)} more sent, {len(failed)} batches failed"
        )

        queues = client.read_queues(TOPIC)
        hour_ago = client.clock.now_ms() - 3_600_000
        an_hour_ago = client.offsets_at(dict.fromkeys(queues, hour_ago))
        for queue, end in client.max_offsets(queues).items():
            print(f"{queue} ends at {end}, an hour ago it ended at {an_hour_ago[queue]}")

        read(client)
        for queue, progress in admin.consume_stats(GROUP, TOPIC).items():
            print(f"{queue}: {progress.broker_offset - progress.consumer_offset} messages behind")


def order(number: int) -> OutgoingMessage:
    """Return a sample order."""
    body = {"order": number, "product": "tea" if number % 3 else "coffee", "at": time.time()}
    return OutgoingMessage(
        TOPIC, json.dumps(body).encode(), tags="tea" if number % 3 else "coffee", keys=f"order-{number}"
    )


def read(client: Client) -> None:
    """Read the messages that the group has not consumed, coffee only, and commit the offsets."""
    consumer = PullConsumer(GROUP, client=client)
    coffees = 0
    for queue in consumer.fetch_subscribe_message_queues(TOPIC):
        committed = consumer.fetch_consume_offset(queue)
        offset = consumer.min_offset(queue) if committed is None else committed
        while True:
            result = consumer.pull(queue, "coffee", offset)
            coffees += len(result.messages)
            offset = result.next_begin_offset
            if result.status is PullStatus.NO_NEW_MSG:
                break
        consumer.update_consume_offset(queue, offset)
    print(f"{coffees} coffees since the last run")


if __name__ == "__main__":
    main()
