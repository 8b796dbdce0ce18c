"""The surface: both spellings of every name, and every method that RocketMQ Streams has or why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_rocketmq import streams

PAGE = Path(__file__).parents[3] / "docs" / "coming-from-rocketmq-streams.md"

CLASSES = [
    *("StreamBuilder", "DataStreamSource", "DataStream", "WindowStream", "JoinStream", "SplitStream"),
    *("OverWindowStream", "RStream", "GroupedStream", "WindowedStream", "JoinedStream", "RocketMQStream"),
]

JAVA = {
    "StreamBuilder": ["dataStream", "source", "build"],
    "DataStreamSource": [
        *("fromArray", "fromMemory", "fromFile", "fromRocketmq", "fromMultipleDB", "fromCycleSource"),
        *("fromCollection", "fromMqtt", "from", "create", "fromCSVFile", "fromKafka"),
    ],
    "DataStream": [
        *("with", "script", "filterByExpression", "map", "flatMap", "filter", "window", "distinct", "topN"),
        *("addStage", "join", "leftJoin", "union", "split", "dimJoin", "dimLeftJoin", "innerJoin", "forEach"),
        *("forEachMessage", "selectFields", "toFile", "toPrint", "toDB", "toRocketmq", "toEnhanceDBSink"),
        *("toMultiDB", "toMqtt", "toKafka", "to", "start", "asyncStart"),
    ],
    "JoinStream": ["setJoinType", "window", "setCondition", "on", "toDataSteam"],
    "OverWindowStream": ["setRowNumName", "addOrderByFieldName", "setTopN", "groupBy", "toDataSteam"],
    "SplitStream": ["select"],
    "WindowStream": [
        *("count", "emitBeforeFire", "emitAfterFire", "distinct", "count_distinct", "count_distinct_2"),
        *("count_distinct_large", "min", "max", "avg", "sum", "setTimeField", "setFireMode"),
        *("setLocalStorageOnly", "setMaxMsgGap", "group", "groupBy", "fireMode", "waterMark", "timeField"),
        *("reduce", "toDataSteam"),
    ],
    "RStream": [
        *("selectTimestamp", "map", "flatMap", "filter", "keyBy", "print", "foreach", "join", "leftJoin"),
        "sink",
    ],
    "GroupedStream": ["count", "min", "max", "sum", "filter", "map", "aggregate", "window", "toRStream"],
    "JoinedStream": ["where", "equalTo", "window", "apply"],
    "WindowedStream": ["count", "avg", "min", "max", "sum", "filter", "map", "aggregate"],
    "RocketMQStream": ["start", "stop", "isRunning"],
}
"""The public methods of rocketmq-streams-clients 1.0.1 and of the newer core."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ACRONYM = re.compile(r"(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """Return a camelCase name in snake_case: ``toDB`` is ``to_db``, ``fromRocketmq`` ``from_rocketmq``."""
    return _HUMP.sub("_", _ACRONYM.sub("_", name)).lower()


RENAMED = {"from": "from_", "with": "with_"}


@pytest.mark.parametrize("name", CLASSES)
def test_every_camel_case_name_has_its_twin(name):
    cls = getattr(streams, name)
    methods = [m for m in dir(cls) if not m.startswith("_") and snake_case(m) != m]
    assert methods or name == "SplitStream", "which has none"
    for method in methods:
        assert getattr(cls, snake_case(method)) == getattr(cls, method)


@pytest.mark.parametrize("name", JAVA)
def test_every_java_method_is_there_or_said_not_to_be(name):
    cls, page = getattr(streams, name), PAGE.read_text(encoding="utf-8")
    section = page.split(f"## {name}\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    for method in JAVA[name]:
        assert method in rows, f"the page does not name {method}"
        offered = hasattr(cls, RENAMED.get(method, method))
        assert offered == ("not offered" not in rows[method]), method


def test_a_plan_shows_no_secret():
    source = streams.StreamBuilder.dataStream("n", "p")
    stream = source.fromRocketmq("t", "g", True, "h:1", secretKey="hidden-one")
    stream = stream.toDB("postgresql+psycopg://h/db", "u", "hidden-two", "t").toRocketmq(
        "o", "h:1", secretKey="hidden-three"
    )
    assert "hidden" not in repr(stream.plan())
    assert "hidden" not in stream.explain()
