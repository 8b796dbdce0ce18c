-- q4: The average price at which auctions of a category end. An average of maxima that change.

CREATE TABLE nexmark_q4 (
  category BIGINT,
  price BIGINT,
  PRIMARY KEY (category) NOT ENFORCED
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q4'
);

INSERT INTO nexmark_q4
SELECT category, AVG(final)
FROM (
  SELECT offered.category, MAX(made.price) AS final
  FROM auction AS offered, bid AS made
  WHERE made.auction = offered.id AND made.`dateTime` BETWEEN offered.`dateTime` AND offered.expires
  GROUP BY offered.id, offered.category
) AS winners
GROUP BY category;
