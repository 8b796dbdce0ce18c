"""Windows and states of DStreams over a recovery, compared with what the batches had, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta

import pytest
from pyspark import RDD, SparkContext
from pyspark.streaming import DStream, StreamingContext
from tests.support.wait import eventually

from pyspark_rocketmq.dstream import RocketMQConfig, RocketMQUtils

INTERVAL_S = 2
INTERVAL = timedelta(seconds=INTERVAL_S)
LENGTH = 3
"""Of the windows, in batches."""

# What a checkpoint holds is unpickled: so these stand at the module's level.

OUTPUTS: dict[str, dict[datetime, list[list]]] = defaultdict(lambda: defaultdict(list))
"""By output and time of a batch, what it had each time that it ran."""

FAILED: list[datetime] = []
"""The batches whose rows could not be written."""

SINK = {"works": True}


def take(name: str, time: datetime, rdd: RDD) -> None:
    rows = sorted(rdd.collect())  # of a batch that is stopped meanwhile, there is no output
    OUTPUTS[name][time].append(rows)


def take_rows(time: datetime, rdd: RDD) -> None:
    if not SINK["works"] and not rdd.isEmpty():
        FAILED.append(time)
        raise RuntimeError("the sink is down")
    take("rows", time, rdd)


def take_window(time: datetime, rdd: RDD) -> None:
    take("window", time, rdd)


def take_counts(time: datetime, rdd: RDD) -> None:
    take("counts", time, rdd)


def take_state(time: datetime, rdd: RDD) -> None:
    take("state", time, rdd)


def add(a: int, b: int) -> int:
    return a + b


def subtract(a: int, b: int) -> int:
    return a - b


def count_on(new: list[int], before: int | None) -> int:
    return sum(new) + (before or 0)


def add_outputs(rows: DStream) -> None:
    """Of rows (queue id, offset): the rows, those of a window, and counts by queue of a window and of all."""
    rows.foreachRDD(take_rows)
    rows.window(LENGTH * INTERVAL_S, INTERVAL_S).foreachRDD(take_window)
    ones = rows.map(lambda row: (row[0], 1))
    ones.reduceByKeyAndWindow(add, subtract, LENGTH * INTERVAL_S, INTERVAL_S, 1).foreachRDD(take_counts)
    ones.updateStateByKey(count_on, 1).foreachRDD(take_state)


def check_outputs() -> None:
    """Compare the outputs of each time with what its batch, and those before it, had."""
    rows = {}
    for time, tries in sorted(OUTPUTS["rows"].items()):
        assert all(each == tries[0] for each in tries), f"the batch of {time} had other messages"
        rows[time] = tries[0]
    times = sorted(rows)
    for at, time in enumerate(times):
        inside = [row for other in times[max(0, at + 1 - LENGTH) : at + 1] for row in rows[other]]
        all_before = [row for other in times[: at + 1] for row in rows[other]]
        wanted = {
            "window": sorted(inside),
            "counts": sorted(Counter(row[0] for row in inside).items()),
            "state": sorted(Counter(row[0] for row in all_before).items()),
        }
        for name, right in wanted.items():
            for found in OUTPUTS[name][time]:
                assert [row for row in found if row[1] or name == "window"] == right, (name, time, at)


@pytest.mark.parametrize("kind", ["direct", "receiver", "both"])
def test_windows_and_states_after_a_recovery_are_those_of_the_batches(
    contexts, mq, send, topic, group, tmp_path, kind
):
    name, checkpoint = topic(queues=2), str(tmp_path / "checkpoint")
    OUTPUTS.clear()
    FAILED.clear()

    def set_up() -> StreamingContext:
        ssc = StreamingContext(SparkContext._active_spark_context, INTERVAL_S)
        ssc.checkpoint(checkpoint)
        streams = []
        if kind != "receiver":
            options = {"nameServer": mq.name_server}
            direct = RocketMQUtils.createMQPullStream(ssc, group, name, options=options)
            streams.append(direct.map(lambda m: (m.queue_id, m.queue_offset)))
        if kind != "direct":
            properties = {
                RocketMQConfig.NAME_SERVER_ADDR: mq.name_server,
                RocketMQConfig.CONSUMER_GROUP: f"{group}-r",
                RocketMQConfig.CONSUMER_TOPIC: name,
                RocketMQConfig.CONSUMER_OFFSET_RESET_TO: "earliest",
            }
            received = RocketMQUtils.createReliableInputDStream(ssc, properties)
            streams.append(received.map(lambda m: (m.queue_id + 100, m.queue_offset)))
        add_outputs(streams[0] if len(streams) == 1 else ssc.union(*streams))
        return ssc

    sources = 2 if kind == "both" else 1

    def has_messages(count: int) -> bool:
        tries = [each for tries in list(OUTPUTS["rows"].values()) for each in tries]
        return len({row for each in tries for row in each}) == count * sources

    def newest() -> datetime:
        return max(list(OUTPUTS["state"]))

    def run(ssc: StreamingContext, parts: range) -> None:
        ssc.start()
        for part in parts:
            send(name, 10)
            eventually(lambda: has_messages(part * 10), 60, what="the messages")  # noqa: B023 - at once

    ssc = contexts(lambda: StreamingContext.getOrCreate(checkpoint, set_up))
    run(ssc, range(1, 3))
    SINK["works"] = False
    send(name, 10)
    eventually(lambda: FAILED, 60, what="a batch that fails")
    eventually(lambda: newest() > FAILED[-1] + 2 * INTERVAL, 60, what="checkpoints after it")
    ssc.stop(stopSparkContext=False)
    SINK["works"] = True
    ssc = contexts(lambda: StreamingContext.getOrCreate(checkpoint, set_up))
    run(ssc, range(4, 6))
    at = newest()
    eventually(lambda: newest() > at, 60, what="a batch after them")
    ssc.stop(stopSparkContext=False)
    check_outputs()


def test_a_receiver_without_a_log_recovers_and_its_windows_begin_again(
    contexts, mq, send, topic, group, tmp_path
):
    name, checkpoint = topic(queues=2), str(tmp_path / "checkpoint")
    OUTPUTS.clear()

    def set_up() -> StreamingContext:
        ssc = StreamingContext(SparkContext._active_spark_context, INTERVAL_S)
        ssc.checkpoint(checkpoint)
        properties = {
            RocketMQConfig.NAME_SERVER_ADDR: mq.name_server,
            RocketMQConfig.CONSUMER_GROUP: group,
            RocketMQConfig.CONSUMER_TOPIC: name,
            RocketMQConfig.CONSUMER_OFFSET_RESET_TO: "earliest",
        }
        received = RocketMQUtils.createInputDStream(ssc, properties, "MEMORY_ONLY")
        rows = received.map(lambda m: (m.queue_id, m.queue_offset))
        rows.foreachRDD(take_rows)
        rows.window(LENGTH * INTERVAL_S, INTERVAL_S).foreachRDD(take_window)
        return ssc

    def run(parts: range) -> None:
        ssc = contexts(lambda: StreamingContext.getOrCreate(checkpoint, set_up))
        ssc.start()
        for part in parts:
            send(name, 10)
            eventually(lambda: len(all_rows()) == part * 10, 60, what="the messages")  # noqa: B023 - at once
        at = max(OUTPUTS["window"])
        eventually(lambda: max(list(OUTPUTS["window"])) > at, 60, what="a window after them")
        ssc.stop(stopSparkContext=False)

    def all_rows() -> set:
        return {row for tries in list(OUTPUTS["rows"].values()) for each in tries for row in each}

    run(range(1, 3))
    before = {output: {time: len(tries) for time, tries in OUTPUTS[output].items()} for output in OUTPUTS}
    run(range(3, 5))

    def since(output: str) -> dict[datetime, list[list]]:
        tries = {
            time: all_tries[before[output].get(time, 0) :] for time, all_tries in OUTPUTS[output].items()
        }
        return {time: some for time, some in tries.items() if some}

    rows, windows = since("rows"), since("window")
    assert sum(len(each) for tries in rows.values() for each in tries) >= 20
    for time, tries in windows.items():
        inside = [each for at in range(LENGTH) for each in rows.get(time - at * INTERVAL, ())]
        assert tries == [sorted(row for each in inside for row in each)], time
