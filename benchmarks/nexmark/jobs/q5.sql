-- q5: The auctions with most bids in the last ten seconds.

CREATE TABLE nexmark_q5 (
  auction BIGINT,
  num BIGINT
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q5'
);

INSERT INTO nexmark_q5
WITH counts AS (
  SELECT auction, window_start AS began, window_end AS ended, COUNT(*) AS num
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
)
SELECT counts.auction, counts.num
FROM counts
JOIN (SELECT began, ended, MAX(num) AS num FROM counts GROUP BY began, ended) AS most
  ON counts.began = most.began AND counts.ended = most.ended AND counts.num = most.num;
