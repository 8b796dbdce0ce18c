-- q8: People who came and sold in the same ten seconds.

CREATE TABLE nexmark_q8 (
  id BIGINT,
  name VARCHAR,
  began TIMESTAMP(3)
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q8'
);

INSERT INTO nexmark_q8
SELECT came.id, came.name, came.began
FROM (
  SELECT id, name, window_start AS began, window_end AS ended FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS came
JOIN (
  SELECT seller, window_start AS began, window_end AS ended FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS sold ON came.id = sold.seller AND came.began = sold.began AND came.ended = sold.ended;
