-- Orders that are paid within an hour, and what is clicked by the minute: three sources, a join, a window, two
-- sinks. The name server comes from NAMESRV_ADDR.
--
--   pyspark-rocketmq sql examples/sql/shop.sql --checkpoint /tmp/shop

SET 'trigger' = '1 second';
SET 'spark.sql.shuffle.partitions' = '2';

CREATE TABLE orders (
  order_id BIGINT NOT NULL,
  product STRING,
  cents BIGINT,
  ordered_at TIMESTAMP(3),
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '10' SECOND
) WITH (
  'connector' = 'rocketmq', 'topic' = 'shop_orders', 'startingOffsets' = 'earliest', 'badRecords' = 'drop'
);

CREATE TABLE payments (
  order_id BIGINT NOT NULL,
  paid_at TIMESTAMP(3),
  WATERMARK FOR paid_at AS paid_at - INTERVAL '10' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'shop_payments', 'startingOffsets' = 'earliest');

CREATE TABLE clicks (
  product STRING,
  clicked_at TIMESTAMP(3),
  WATERMARK FOR clicked_at AS clicked_at - INTERVAL '10' SECOND
) WITH (
  'connector' = 'rocketmq', 'topic' = 'shop_clicks', 'startingOffsets' = 'earliest', 'format' = 'csv'
);

CREATE TABLE paid_orders (
  order_id BIGINT,
  product STRING,
  cents BIGINT,
  seconds DOUBLE
) WITH ('connector' = 'rocketmq', 'topic' = 'shop_paid_orders', 'keyColumns' = 'order_id');

CREATE TABLE clicks_by_minute (
  `minute` TIMESTAMP(3),
  product STRING,
  clicks BIGINT
) WITH ('connector' = 'rocketmq', 'topic' = 'shop_clicks_by_minute');

CREATE VIEW worthy_orders AS SELECT * FROM orders WHERE cents > 0;

INSERT INTO paid_orders
SELECT o.order_id, o.product, o.cents, unix_millis(p.paid_at) / 1000.0D - unix_millis(o.ordered_at) / 1000.0D
FROM worthy_orders o JOIN payments p
  ON o.order_id = p.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL 1 HOUR;

INSERT INTO clicks_by_minute
SELECT window.start, product, count(*)
FROM clicks
GROUP BY window(clicked_at, '1 minute'), product;
