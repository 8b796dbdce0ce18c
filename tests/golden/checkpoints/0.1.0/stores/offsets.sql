BEGIN TRANSACTION;
CREATE TABLE rocketmq_batches (
	job VARCHAR(200) NOT NULL, 
	query_id VARCHAR(200) NOT NULL, 
	batch BIGINT NOT NULL, 
	PRIMARY KEY (job)
);
INSERT INTO "rocketmq_batches" VALUES('totals','1f9d2c5e-7a64-4c6f-9d34-8a2f0f6b1c11',41);
CREATE TABLE rocketmq_offsets (
	job VARCHAR(200) NOT NULL, 
	topic VARCHAR(255) NOT NULL, 
	broker_name VARCHAR(255) NOT NULL, 
	queue_id INTEGER NOT NULL, 
	next_offset BIGINT NOT NULL, 
	PRIMARY KEY (job, topic, broker_name, queue_id)
);
INSERT INTO "rocketmq_offsets" VALUES('totals','orders','broker-a',0,150);
INSERT INTO "rocketmq_offsets" VALUES('totals','orders','broker-a',1,98);
INSERT INTO "rocketmq_offsets" VALUES('totals','payments','broker-b',0,7);
COMMIT;
