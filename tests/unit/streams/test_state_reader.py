"""Which tables a job's state has, by what Spark's metadata say of it."""

from __future__ import annotations

import json

from pyspark.sql import Row

from pyspark_rocketmq.streams.run.state_reader import JobState


class Metadata:
    """Stands for a session whose reader knows these rows."""

    def __init__(self, *rows):
        self._rows = rows

    @property
    def read(self):
        return self

    def format(self, name):
        assert name == "state-metadata"
        return self

    def load(self, path):
        assert path == "/checkpoint"
        return self

    def collect(self):
        return list(self._rows)


def operator(number, name, *variables):
    properties = {"stateVariables": [{"stateName": name} for name in variables]} if variables else None
    text = json.dumps(properties) if properties else None
    return Row(operatorId=number, operatorName=name, minBatchId=0, operatorProperties=text)


def names(*rows):
    return JobState(Metadata(*rows), "/checkpoint").tables()


def test_tables_by_operator():
    assert names(operator(0, "stateStoreSave")) == ["groups"]
    assert names(operator(0, "symmetricHashJoin"), operator(0, "symmetricHashJoin")) == ["left", "right"]
    assert names(operator(0, "dedupeWithinWatermark"), operator(1, "stateStoreSave")) == [
        "distinct",
        "groups",
    ]
    assert names(operator(1, "stateStoreSave"), operator(0, "stateStoreSave")) == ["groups", "groups#1"]


def test_a_processors_variables_are_its_tables_and_sparks_own_are_not():
    timers = "$procTimers_keyToTimestamp"
    assert names(operator(0, "transformWithStateInPySparkExec", "b", timers, "a")) == ["b", "a"]
