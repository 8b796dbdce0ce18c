-- Queries of Flink SQL of every form that streams have: flink_queries.txt has what they become.

CREATE TABLE bid (id INT, k STRING, p INT, ts TIMESTAMP(3), now AS PROCTIME(), tags ARRAY<STRING>,
  items ARRAY<ROW<sku STRING, n INT>>, WATERMARK FOR ts AS ts) WITH ('connector' = 'rocketmq', 'topic' = 'b');
CREATE TABLE ask (id INT, k STRING, p INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'rocketmq', 'topic' = 'a');
CREATE TABLE rates (k STRING, rate INT, since TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED,
  WATERMARK FOR since AS since) WITH ('connector' = 'rocketmq', 'topic' = 'r');
CREATE TABLE log (k STRING, rate INT, since TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED,
  WATERMARK FOR since AS since) WITH ('connector' = 'rocketmq', 'topic' = 'c', 'format' = 'canal-json');
CREATE TABLE names (k STRING, name STRING) WITH ('connector' = 'filesystem', 'path' = '/n', 'format' = 'csv');
CREATE TABLE shops (k STRING, name STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/s', 'table-name' = 's');

CREATE VIEW minutes AS SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE));
CREATE VIEW renamed (k, p, s, e) AS SELECT k, p, window_start, window_end
  FROM TABLE(HOP(TABLE ask, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR));
CREATE VIEW counted AS SELECT k, window_start, window_end, window_time, COUNT(*) AS n FROM minutes
  GROUP BY k, window_start, window_end, window_time;
CREATE VIEW ranked AS SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY p DESC, ts) AS rn FROM bid;
CREATE VIEW latest AS SELECT k, rate, since FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY since
  DESC) AS rn FROM (SELECT k, p AS rate, ts AS since FROM ask) AS a) WHERE rn = 1;
CREATE VIEW timed (k, n, t) AS SELECT k, n, window_time FROM counted;
CREATE VIEW both (key) AS SELECT k FROM bid UNION ALL SELECT k FROM ask;
CREATE VIEW per_key AS SELECT k, COUNT(*) AS n, MAX(p) AS most FROM bid GROUP BY k;

-- Windows.
SELECT t.*, t.window_start AS s FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS t WHERE p > 1;
SELECT * FROM minutes JOIN names ON names.k = minutes.k;
SELECT k, MAX(p) AS p, window_start FROM TABLE(CUMULATE(TABLE bid, DESCRIPTOR(ts), INTERVAL '1' MINUTE,
  INTERVAL '1' HOUR, INTERVAL '90' MINUTE)) GROUP BY k, window_start, window_end;
SELECT s, e, SUM(p) FROM renamed GROUP BY e, s;
SELECT e, SUM(p) FROM renamed GROUP BY e;
SELECT k, window_start, window_end, COUNT(*) AS n FROM minutes
  GROUP BY GROUPING SETS ((k, window_start, window_end), (window_start, window_end));
SELECT w, MAX(n) AS most FROM (SELECT k, window(ts, '1 minute') AS w, COUNT(*) AS n FROM bid
  GROUP BY k, window(ts, '1 minute')) AS c GROUP BY w;
SELECT window, MAX(n) AS most FROM (SELECT * FROM (SELECT window(ts, '1 minute'), COUNT(*) AS n FROM bid
  GROUP BY k, window(ts, '1 minute')) AS c) AS d GROUP BY window;
WITH c (a, s, e) AS (SELECT k, window_start, window_end FROM minutes) SELECT a, s, COUNT(*) FROM c GROUP BY a, s, e;
SELECT s, COUNT(*) FROM (SELECT k, window_start, window_end FROM minutes) AS c (a, s, e) GROUP BY s, e;
SELECT window_end, SUM(n) FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(t), INTERVAL '1' HOUR)) GROUP BY window_end;
SELECT a.k FROM minutes AS a JOIN minutes AS b ON a.window_start = b.window_start OR a.window_end = b.window_end;
SELECT a.k FROM minutes AS a JOIN ask AS b ON a.k = b.k AND a.window_start = b.ts AND b.ts = a.window_end
  AND a.window_start = a.window_start AND a.window_end = a.window_end;
SELECT window_start, SUM(n) FROM counted GROUP BY window_start, window_end;
SELECT * FROM (SELECT k, window_start AS s, window_end FROM counted) AS c;
SELECT window_end, SUM(n) FROM TABLE(TUMBLE(TABLE counted, DESCRIPTOR(window_time), INTERVAL '1' HOUR))
  GROUP BY window_start, window_end;
SELECT window_end, SUM(n) FROM TABLE(CUMULATE(TABLE counted, DESCRIPTOR(window_time), INTERVAL '1' HOUR,
  INTERVAL '1' DAY)) AS c GROUP BY c.window_start, window_end;
SELECT k, COUNT(*) AS n, window_start AS s, window_end, window_time FROM TABLE(SESSION(TABLE bid PARTITION BY k,
  DESCRIPTOR(ts), INTERVAL '5' MINUTE)) AS w GROUP BY k, window_start, window_end, window_time;
SELECT COUNT(*) AS n FROM TABLE(SESSION(TABLE bid, DESCRIPTOR(ts), INTERVAL '5' MINUTE))
  GROUP BY window_start, window_end;
SELECT UPPER(k) AS u, COUNT(*) AS n, HOP_START(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY, INTERVAL '5' MINUTE) AS s
  FROM bid GROUP BY UPPER(k), HOP(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY, INTERVAL '5' MINUTE);
SELECT k, TUMBLE_START(ts, INTERVAL '1' DAY, INTERVAL '8' HOUR) AS s, COUNT(*) AS n,
  TUMBLE_END(ts, INTERVAL '1' DAY, INTERVAL '8' HOUR) AS e FROM bid
  GROUP BY k, TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '8' HOUR);
SELECT HOP_ROWTIME(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY) AS t, COUNT(*) AS n FROM bid
  GROUP BY HOP(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY);
SELECT e, MAX(n) FROM (SELECT SESSION_START(ts, INTERVAL '1' HOUR) AS s, SESSION_END(ts, INTERVAL '1' HOUR) AS e,
  COUNT(*) AS n FROM bid GROUP BY SESSION(ts, INTERVAL '1' HOUR)) AS g GROUP BY s, e;
SELECT a.k, b.p FROM minutes AS a LEFT JOIN minutes AS b ON a.k = b.k AND a.window_start = b.window_start
  AND b.window_end = a.window_end;
SELECT a.*, b.p FROM minutes AS a, minutes AS b WHERE a.window_start = b.window_start
  AND a.window_end = b.window_end;
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY p) AS rn
  FROM minutes) WHERE rn <= 3;
SELECT DISTINCT k, window_start, window_end FROM minutes;

-- Aggregations whose rows change, and steps.
SELECT k FROM bid;
SELECT MAX(p) AS most FROM bid;
SELECT 1 AS one FROM bid HAVING COUNT(*) > 3;
SELECT k, COUNT(DISTINCT p, id) AS n FROM bid GROUP BY k;
SELECT k, n + 1 AS more FROM per_key;
SELECT k, n FROM per_key WHERE n < 3;
SELECT n, COUNT(*) AS ks, SUM(most) FILTER (WHERE most > 1) AS s FROM per_key AS c GROUP BY n;
SELECT c.n + 1, AVG(DISTINCT most) FROM per_key AS c GROUP BY c.n + 1 HAVING MIN(most) > 2;
WITH c AS (SELECT * FROM per_key), d AS (SELECT n FROM c) SELECT n, COUNT(*) FROM d AS e GROUP BY 1;
SELECT SUM(n) FROM counted;
SELECT k, COUNT(*) AS n FROM bid GROUP BY 1;
SELECT c.*, s.name, 1 AS one FROM per_key AS c JOIN shops AS s ON s.k = c.k;
SELECT s.*, C.most, C.k AS of FROM per_key AS c JOIN shops AS s ON s.k = c.k;
WITH c AS (SELECT k, n FROM per_key) SELECT x.n, a.p FROM c AS x JOIN ask AS a ON a.k = x.k;
WITH c (a, b) AS (SELECT k, p FROM bid), d AS (SELECT * FROM per_key) SELECT a, n FROM c JOIN d ON c.a = d.k;
SELECT COUNT(*) AS n FROM bid HAVING COUNT(*) < 3;
SELECT b.k, COUNT(*) AS n FROM bid AS b GROUP BY k HAVING COUNT(*) < 3;
SELECT /*+ BROADCAST(s) */ n, COUNT(*) AS c FROM per_key AS c JOIN shops AS s ON s.k = c.k GROUP BY n;
SELECT TUMBLE_END(ts, INTERVAL '1' HOUR) AS e, COUNT(*) AS n FROM bid GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)
  HAVING COUNT(*) < 3;
SELECT a.k, COUNT(*) AS n FROM bid AS b JOIN ask AS a ON a.k = b.k GROUP BY a.k HAVING COUNT(*) < 3;
SELECT DISTINCT k, p FROM bid;
SELECT DISTINCT n FROM per_key;
SELECT k FROM bid UNION SELECT k FROM ask;
SELECT k, COUNT(DISTINCT p), SUM(DISTINCT p) FROM bid GROUP BY k;
SELECT c.n, FLOOR(AVG(a.p)) AS f FROM per_key AS c JOIN ask AS a ON a.k = c.k GROUP BY c.n;

-- The first rows of a key.
SELECT * FROM ranked WHERE rn <= 3;
SELECT k, p FROM ranked WHERE rn < 4 AND p > 0;
SELECT k, rn AS place FROM ranked WHERE rn <= 3;
SELECT k, rn FROM ranked WHERE NOT k = 'x' AND rn <= 3;
SELECT k, p FROM ranked WHERE rn <= 2;
SELECT k, ts FROM ranked WHERE rn = 1;
SELECT UPPER(k) AS u, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY UPPER(k) ORDER BY p) AS rn FROM bid)
  WHERE rn = 1;
SELECT id, p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY UPPER(k) ORDER BY p) AS rn FROM bid) WHERE rn = 1;
SELECT p FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY 1 ORDER BY p) AS rn FROM bid) WHERE rn = 1;
SELECT p, ts FROM ranked WHERE 1 >= rn;
SELECT k, n, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY most DESC NULLS LAST, k) AS rn
  FROM per_key) WHERE 3 >= rn;
SELECT x.k FROM (SELECT * FROM ranked WHERE rn <= 5) AS x WHERE x.p > 3;

-- Joins.
SELECT a.id, c.n FROM per_key AS c JOIN ask AS a ON c.k = a.k AND a.p > c.n;
SELECT * FROM per_key AS c LEFT JOIN ask AS a ON c.k = a.k AND a.p = c.n;
SELECT a.*, c.n FROM per_key AS c RIGHT JOIN ask AS a ON c.k = a.k WHERE c.n > 3;
SELECT b.id, c.n /* of the key */ FROM bid AS b, per_key AS c WHERE b.k = c.k AND c.n > b.p;
SELECT c.n, s.name FROM per_key AS c JOIN shops AS s ON s.k = c.k WHERE c.n < 3;
SELECT a.p, a.window_start, c.n FROM per_key AS c FULL JOIN minutes AS a ON a.k = c.k;
SELECT b.p, c.n FROM bid AS b JOIN ask AS a ON a.id = b.id JOIN per_key AS c ON c.k = b.k;
SELECT b.p, c.n FROM bid AS b JOIN ask AS a ON a.id = b.id JOIN per_key AS c ON a.p = b.p AND c.k = b.k;
SELECT b.id, r.rate FROM bid AS b JOIN ask AS a ON a.id = b.id JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r
  ON r.k = b.k;
SELECT b.id, n.name FROM bid AS b JOIN names FOR SYSTEM_TIME AS OF b.now AS n ON n.k = b.k;
SELECT b.id, r.rate FROM bid AS b JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON r.k = b.k;
SELECT * FROM bid AS b LEFT JOIN rates FOR SYSTEM_TIME AS OF b.ts AS r ON b.k = r.k WHERE b.p > 1;
SELECT b.p * r.rate FROM bid AS b JOIN log FOR SYSTEM_TIME AS OF b.ts AS r ON b.k = r.k AND r.rate > b.p;
SELECT b.k, l.* FROM bid AS b JOIN latest FOR SYSTEM_TIME AS OF b.ts AS l ON b.k = l.k;

-- OVER, and arrays.
SELECT k, p, SUM(p) OVER (PARTITION BY k ORDER BY ts) AS s, COUNT(*) OVER (PARTITION BY k ORDER BY ts)
  FROM bid WHERE p > 0;
SELECT b.*, MAX(p) OVER w - p AS d FROM bid AS b WINDOW w AS (PARTITION BY k, id ORDER BY ts ROWS BETWEEN 2
  PRECEDING AND CURRENT ROW);
SELECT AVG(p) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) FROM bid;
SELECT *, MIN(n) OVER (PARTITION BY k ORDER BY window_time) AS least FROM counted AS c;
SELECT id, t FROM bid CROSS JOIN UNNEST(tags) AS x (t);
SELECT b.id, x.sku FROM bid AS b LEFT JOIN UNNEST(b.items) AS x (sku, n) ON TRUE;

-- Changelogs, and what is no stream.
SELECT k, rate FROM log WHERE rate > 1;
SELECT name FROM names WHERE k > 'a';
