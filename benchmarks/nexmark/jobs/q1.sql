-- q1: Dollars to euros.

CREATE TABLE nexmark_q1 (
  auction BIGINT,
  bidder BIGINT,
  price DECIMAL(23, 3),
  `dateTime` TIMESTAMP(3),
  extra VARCHAR
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q1'
);

INSERT INTO nexmark_q1
SELECT auction, bidder, price * 0.908, `dateTime`, extra FROM bid;
