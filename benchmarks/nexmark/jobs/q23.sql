-- q23: Bids with the person who bid and the auctions of this person.

CREATE TABLE nexmark_q23 (
  bidder BIGINT,
  price BIGINT,
  channel VARCHAR,
  url VARCHAR,
  name VARCHAR,
  city VARCHAR,
  state VARCHAR,
  auction BIGINT,
  itemName VARCHAR,
  category BIGINT
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q23'
);

INSERT INTO nexmark_q23
SELECT made.bidder, made.price, made.channel, made.url, who.name, who.city, who.state, offered.id, offered.itemName,
  offered.category
FROM bid AS made
JOIN person AS who ON who.id = made.bidder
JOIN auction AS offered ON offered.seller = made.bidder;
