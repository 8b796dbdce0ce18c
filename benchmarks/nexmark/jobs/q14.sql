-- q14: Expensive bids, by the time of day.

CREATE TABLE nexmark_q14 (
  auction BIGINT,
  bidder BIGINT,
  price DECIMAL(23, 3),
  kind VARCHAR,
  `dateTime` TIMESTAMP(3),
  extra VARCHAR,
  c_counts BIGINT
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q14'
);

CREATE TEMPORARY FUNCTION count_char AS 'benchmarks.nexmark.functions.count_char' LANGUAGE PYTHON;

INSERT INTO nexmark_q14
SELECT auction, bidder, price * 0.908,
  CASE
    WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
    WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END,
  `dateTime`, extra, count_char(extra, 'c')
FROM bid
WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000;
