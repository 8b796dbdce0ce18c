-- Copies what users bought to a separate topic. The name server comes from NAMESRV_ADDR.
--
--   pyspark-rocketmq sql examples/sql/user_behavior.sql --checkpoint /tmp/user_behavior

CREATE TABLE user_behavior (
  `user_id` BIGINT,
  `item_id` BIGINT,
  `behavior` STRING,
  `stored_at` TIMESTAMP(3) METADATA FROM 'storeTimestamp' VIRTUAL
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'user_behavior',
  'consumerGroup' = 'behavior_consumer_group',
  'scanStartupMode' = 'earliest'
);

CREATE TABLE purchases (
  `user_id` BIGINT,
  `item_id` BIGINT,
  `tag` STRING METADATA FROM 'tags'
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'user_purchases',
  'produceGroup' = 'behavior_produce_group',
  'keyColumns' = 'user_id'
);

SET 'trigger' = 'availableNow';

INSERT INTO purchases
SELECT user_id, item_id, if(item_id < 1000, 'old', 'new')
FROM user_behavior
WHERE behavior = 'buy';
