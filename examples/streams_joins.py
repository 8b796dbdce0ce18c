"""Join orders and payments in a window, then with a table of cities, and write them to a database.

Run ``pyspark-rocketmq streams run examples/streams_joins.py 127.0.0.1:9876 orders payments cities.csv URL``;
the table ``paid`` must exist. Needs the extra ``sql``.
"""

from __future__ import annotations

import sys

from pyspark_rocketmq.streams import DataStream, StreamBuilder, Time


def pipeline(name_server: str, orders: str, payments: str, cities: str, url: str) -> DataStream:
    source = StreamBuilder.dataStream("namespace", "joins")
    left = source.fromRocketmq(orders, "joins", True, name_server).selectFields("order_id", "city")
    right = source.fromRocketmq(payments, "joins", True, name_server).selectFields("order_id", "amount")
    return (
        left.join(right)
        .window(Time.seconds(10))
        .on("(order_id,==,order_id)")
        .toDataStream()
        .dimLeftJoin(cities, 5)
        .on("(city,==,id)")
        .toDataStream()
        .selectFields("order_id", "amount", "name")
        .toDB(url, None, None, "paid")
    )


if __name__ == "__main__":
    pipeline(*sys.argv[1:]).start()
