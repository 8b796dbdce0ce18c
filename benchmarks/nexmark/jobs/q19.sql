-- q19: The ten highest bids of each auction.

CREATE TABLE nexmark_q19 (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel VARCHAR,
  url VARCHAR,
  `dateTime` TIMESTAMP(3),
  extra VARCHAR,
  place BIGINT
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q19'
);

INSERT INTO nexmark_q19
SELECT *
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
WHERE place <= 10;
