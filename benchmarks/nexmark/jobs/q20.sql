-- q20: Bids on auctions of one category, with the auction.

CREATE TABLE nexmark_q20 (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel VARCHAR,
  url VARCHAR,
  bid_at TIMESTAMP(3),
  bid_extra VARCHAR,
  itemName VARCHAR,
  description VARCHAR,
  initialBid BIGINT,
  reserve BIGINT,
  auction_at TIMESTAMP(3),
  expires TIMESTAMP(3),
  seller BIGINT,
  category BIGINT,
  auction_extra VARCHAR
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q20'
);

INSERT INTO nexmark_q20
SELECT made.auction, made.bidder, made.price, made.channel, made.url, made.`dateTime`, made.extra, offered.itemName,
  offered.description, offered.initialBid, offered.reserve, offered.`dateTime`, offered.expires, offered.seller,
  offered.category, offered.extra
FROM bid AS made
JOIN auction AS offered ON offered.id = made.auction
WHERE offered.category = 10;
