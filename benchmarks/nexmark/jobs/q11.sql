-- q11: Bids of each session of a bidder.

CREATE TABLE nexmark_q11 (
  bidder BIGINT,
  bids BIGINT,
  began TIMESTAMP(3),
  ended TIMESTAMP(3)
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q11'
);

INSERT INTO nexmark_q11
SELECT bidder, COUNT(*), SESSION_START(`dateTime`, INTERVAL '10' SECOND), SESSION_END(`dateTime`, INTERVAL '10' SECOND)
FROM bid
GROUP BY bidder, SESSION(`dateTime`, INTERVAL '10' SECOND);
