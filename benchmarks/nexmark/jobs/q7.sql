-- q7: The highest bids of each ten seconds.

CREATE TABLE nexmark_q7 (
  auction BIGINT,
  price BIGINT,
  bidder BIGINT,
  `dateTime` TIMESTAMP(3),
  extra VARCHAR
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q7'
);

INSERT INTO nexmark_q7
SELECT made.auction, made.price, made.bidder, made.`dateTime`, made.extra
FROM bid AS made
JOIN (
  SELECT MAX(price) AS price, window_start AS began, window_end AS ended
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS highest ON made.price = highest.price
WHERE made.`dateTime` BETWEEN highest.began AND highest.ended;
