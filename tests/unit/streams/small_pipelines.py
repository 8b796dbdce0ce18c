"""Beginnings of pipelines, for tests of their plans."""

from __future__ import annotations

from pyspark.sql.streaming import StatefulProcessor

from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow
from pyspark_rocketmq.streams.run.launcher import PlanRecorder, launching_with

MINUTE = TumblingWindow.of(Time.minutes(1), "t")


def stream(*, is_json=True):
    return StreamBuilder.dataStream("tests", "analysis").fromRocketmq("topic", "group", is_json, "h:1")


def plan_of(pipeline):
    recorder = PlanRecorder()
    with launching_with(recorder):
        pipeline.toPrint().start()
    (plan,) = recorder.plans
    return plan


def grouped(name="grouped"):
    return StreamBuilder(name).source("topic").keyBy(lambda value: value["k"])


class Last:
    """An accumulator."""

    def addValue(self, value):
        self.value = value

    def result(self, context):  # noqa: ARG002
        return self.value

    def clone(self):
        return Last()


class Passed(StatefulProcessor):
    """A processor that returns its rows."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N803
        yield from rows

    def close(self):
        pass


def typed():
    source = StreamBuilder.dataStream("tests", "analysis")
    return source.fromRocketmq("topic", "group", namesrvAddr="h:1", schema="k string, v int")


def processed(time_mode="none"):
    return typed().process("k", Passed(), "k string, v int", time_mode)
