-- q13: Bids with a value from a table.

CREATE TABLE nexmark_q13 (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  `dateTime` TIMESTAMP(3),
  side VARCHAR
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q13'
);

CREATE TEMPORARY VIEW side_input AS SELECT id AS number, CONCAT('side ', id) AS side FROM range(10000);

INSERT INTO nexmark_q13
SELECT made.auction, made.bidder, made.price, made.`dateTime`, side.side
FROM (SELECT *, PROCTIME() AS asked_at FROM bid) AS made
JOIN side_input FOR SYSTEM_TIME AS OF made.asked_at AS side ON side.number = MOD(made.auction, 10000);
