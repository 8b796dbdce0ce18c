-- q3: Who sells in three states in one category.

CREATE TABLE nexmark_q3 (
  name VARCHAR,
  city VARCHAR,
  state VARCHAR,
  id BIGINT
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'nexmark_q3'
);

INSERT INTO nexmark_q3
SELECT seller.name, seller.city, seller.state, offered.id
FROM auction AS offered
JOIN person AS seller ON seller.id = offered.seller
WHERE offered.category = 10 AND seller.state IN ('OR', 'ID', 'CA');
