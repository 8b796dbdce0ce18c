BEGIN TRANSACTION;
CREATE TABLE rocketmq_batches (
	job VARCHAR(200) NOT NULL, 
	query_id VARCHAR(200) NOT NULL, 
	batch BIGINT NOT NULL, 
	PRIMARY KEY (job)
);
INSERT INTO "rocketmq_batches" VALUES('report','6cf5a2a3',41);
CREATE TABLE rocketmq_offsets (
	job VARCHAR(200) NOT NULL, 
	topic VARCHAR(255) NOT NULL, 
	broker_name VARCHAR(255) NOT NULL, 
	queue_id INTEGER NOT NULL, 
	next_offset BIGINT NOT NULL, 
	PRIMARY KEY (job, topic, broker_name, queue_id)
);
INSERT INTO "rocketmq_offsets" VALUES('report','orders','broker-a',0,120);
INSERT INTO "rocketmq_offsets" VALUES('report','orders','broker-b',1,7);
COMMIT;
