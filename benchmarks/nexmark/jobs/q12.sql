-- q12: Bids of each bidder in ten seconds of the time of processing.

CREATE TABLE nexmark_q12 (
  bidder BIGINT,
  bids BIGINT,
  began TIMESTAMP(3),
  ended TIMESTAMP(3)
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q12'
);

CREATE VIEW arrived AS SELECT *, PROCTIME() AS arrived_at FROM bid;

INSERT INTO nexmark_q12
SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(TUMBLE(TABLE arrived, DESCRIPTOR(arrived_at), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
