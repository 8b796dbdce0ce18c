-- q9: The bid that wins each auction.

CREATE TABLE nexmark_q9 (
  id BIGINT,
  itemName VARCHAR,
  description VARCHAR,
  initialBid BIGINT,
  reserve BIGINT,
  `dateTime` TIMESTAMP(3),
  expires TIMESTAMP(3),
  seller BIGINT,
  category BIGINT,
  extra VARCHAR,
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  bid_at TIMESTAMP(3),
  bid_extra VARCHAR
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q9'
);

INSERT INTO nexmark_q9
SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra, auction, bidder,
  price, bid_at, bid_extra
FROM (
  SELECT offered.*, made.auction, made.bidder, made.price, made.`dateTime` AS bid_at, made.extra AS bid_extra,
    ROW_NUMBER() OVER (PARTITION BY offered.id ORDER BY made.price DESC, made.`dateTime` ASC) AS place
  FROM auction AS offered, bid AS made
  WHERE made.auction = offered.id AND made.`dateTime` BETWEEN offered.`dateTime` AND offered.expires
)
WHERE place = 1;
