"""Which sources end, and with which options topics are read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    SimpleDataSourceStreamReader,
)

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.model.positions import Earliest, Latest
from pyspark_rocketmq.options import EventTime, SourceOptions, parse_options
from pyspark_rocketmq.streams import RocketMQStream, SchemaConfig, SchemaType, StreamBuilder
from pyspark_rocketmq.streams.connectors import rocketmq
from pyspark_rocketmq.streams.connectors.dataframes import FrameSource
from pyspark_rocketmq.streams.plan.analysis import analyze


class Once(DataSource):
    def reader(self, schema) -> DataSourceReader:
        raise NotImplementedError


class Ever(Once):
    def streamReader(self, schema) -> DataSourceStreamReader:
        raise NotImplementedError


class Simple(Once):
    def simpleStreamReader(self, schema) -> SimpleDataSourceStreamReader:
        raise NotImplementedError


@pytest.mark.parametrize(("source", "ends"), [(Once, True), (Ever, False), (Simple, False)])
def test_a_data_source_ends_when_it_cannot_be_streamed(source, ends):
    assert FrameSource(name="from_", frame=source({})).bounded is ends


def test_anything_else_is_not_a_source():
    with pytest.raises(PlanError, match="from_ takes a DataFrame"):
        StreamBuilder.dataStream("ns", "p").from_("people")


class ReadError(Exception):
    """What Spark is asked to read."""


class Spark:
    """A session that is asked for one source."""

    @property
    def readStream(self):
        return self

    def format(self, name):
        assert name == "rocketmq"
        return self

    def options(self, **given):
        raise ReadError({name.lower(): value for name, value in given.items()})


def options_of(plan):
    (source,) = (node for node in plan.nodes() if isinstance(node, rocketmq.RocketMQSource))
    with pytest.raises(ReadError) as read:
        source.read(Spark(), analyze(plan), plan)
    return parse_options(SourceOptions, *read.value.args, where="readStream")


@pytest.mark.filterwarnings("ignore:auto.offset.reset=largest became")
@pytest.mark.parametrize(
    ("given", "start", "alignment"),
    [
        ({}, Earliest(), EventTime.STORE),
        ({"startingoffsets": "latest", "eventtimealignment": "off"}, Latest(), EventTime.OFF),
        ({"auto.offset.reset": "largest"}, Latest(), EventTime.STORE),
    ],
)
def test_an_option_replaces_the_default_in_each_of_its_spellings(given, start, alignment):
    source = StreamBuilder.dataStream("ns", "p").fromRocketmq("t", "g", namesrvAddr="h:1", **given)
    options = options_of(source.toPrint().plan())
    assert options.start_policy(streaming=True) == start
    assert options.event_time_alignment is alignment


@pytest.mark.parametrize(
    ("more", "named", "told"),
    [
        (("a:1",), {"nameServer": "b:1"}, "nameServer is given twice"),
        (("a:1",), {"namesrvAddr": "b:1"}, "given twice, by its place and by its name"),
        (("x", False, "a:1"), {"tags": "y"}, "given twice, by its place and by its name"),
        ((False, "a:1"), {"isJson": True}, "given twice, by its place and by its name"),
        (("x", "y", "a:1"), {}, "takes topic, groupName, then namesrvAddr"),
        (("a:1",), {"CONSUMERGROUP": "other"}, "consumerGroup is given twice"),
        (("a:1",), {"consumer.group": "other"}, "consumerGroup is given twice"),
        (("a:1", SchemaConfig(SchemaType.JSON)), {"schema": "k int"}, "schema= and a SchemaConfig"),
        (("a:1",), {"columns": "keys,body"}, "columns has no effect: remove it, or .*from_"),
        (("a:1",), {"BODYAS": "binary"}, "bodyAs has no effect"),
        (("a:1",), {"includeProperties": True}, "includeProperties has no effect"),
    ],
)
def test_what_is_given_to_a_topic_replaces_nothing_silently(more, named, told):
    with pytest.raises(PlanError, match=rf"{told}.*fromRocketmq#1"):
        StreamBuilder.dataStream("ns", "p").fromRocketmq("t", "g", *more, **named)


def test_what_is_given_twice_alike_is_one():
    source = StreamBuilder.dataStream("ns", "p")
    topic = source.fromRocketmq("t", "g", "a:1", nameServer="a:1", bodyAs="String", COLUMNS="")
    options = options_of(topic.toPrint().plan())
    assert options.client.name_servers == ("a:1",)
    assert options.columns == ("topic", "body", "storeTimestamp")


@pytest.mark.parametrize(
    ("call", "step"),
    [
        (lambda source: source.fromKafka("h:1", "t", "g", subscribe="u"), "fromKafka#1"),
        (lambda source: source.fromArray([1]).toKafka("h:1", "t", TOPIC="u"), "toKafka#2"),
        (lambda source: source.fromArray([1]).toRocketmq("t", "h:1", nameServer="h:2"), "toRocketmq#2"),
        (lambda source: source.fromArray([1]).toRocketmq("t", "h:1", namesrvAddr="h:2"), "toRocketmq#2"),
        (lambda source: source.fromArray([1]).toRocketmq("t", "x", "g", "h:1", tags="y"), "toRocketmq#2"),
        (lambda _: StreamBuilder("j").source("t", namesrv="h:1", nameServer="h:2"), "source#1"),
        (lambda _: StreamBuilder("j").source("t", group="g", consumerGroup="h"), "source#1"),
    ],
)
def test_no_source_or_sink_takes_an_option_twice(call, step):
    with pytest.raises(PlanError, match=f"given twice, .*{step}"):
        call(StreamBuilder.dataStream("ns", "p"))


@pytest.mark.parametrize("given", [{"group": "g"}, {"consumerGroup": "g"}, {"consumer.group": "g"}, {}])
def test_the_group_of_a_source_is_the_given_one_or_the_jobs(given):
    builder = StreamBuilder("a job")
    builder.source("t", namesrv="h:1", **given).print()
    assert options_of(builder.build().job.plan()).consumer_group == ("g" if given else "a_job")


@pytest.mark.filterwarnings("ignore:auto.offset.reset=largest became")
def test_properties_are_for_what_a_source_does_not_say_itself():
    builder = StreamBuilder("j")
    own = {"nameserver.addr": "own:1", "auto.offset.reset": "largest"}
    builder.source("t", **own).print()
    properties = {"rocketmq.namesrv.addr": "h:1", "consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
    options = options_of(RocketMQStream(builder.build(), properties).plan())
    assert options.client.name_servers == ("own:1",)
    assert options.start_policy(streaming=True) == Latest()


def test_the_last_commit_of_a_query_connects_as_its_source_does(monkeypatch):
    given = {"accesskey": "a", "secretKey": "s", "tls.enable": "true", "tlsCaFile": "/ca.pem", "tags": "x"}
    source = StreamBuilder.dataStream("ns", "p").fromRocketmq("t", "g", namesrvAddr="h:1", **given)
    (node, _) = source.toPrint().plan().nodes()
    found = []
    listener = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(rocketmq, "RocketMQQueryListener", lambda **o: found.append(o) or listener)
    monkeypatch.setattr(rocketmq, "_NOTIFIED_S", 0)
    streams = SimpleNamespace(addListener=found.append, removeListener=found.remove)
    with node.follow(SimpleNamespace(streams=streams)):
        assert found[-1] is listener
    assert found == [{name: given[name] for name in given if name != "tags"}]
