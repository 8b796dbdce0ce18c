"""A connector is one module: everything else asks a node what it can do."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyspark_rocketmq import streams
from pyspark_rocketmq.streams.api.data_stream import DataStream
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.connectors.base import SinkConnector, SourceConnector, TopicSink
from pyspark_rocketmq.streams.plan.nodes import Shape

PACKAGE = Path(streams.__file__).parent


def imported_connectors(file):
    """The modules of connectors that a module imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name.rpartition(".")[2] for name in names if ".streams.connectors." in name}


@pytest.mark.parametrize("folder", ["plan", "frame", "compile", "run"])
def test_what_compiles_and_runs_knows_no_connector_by_its_name(folder):
    for file in (PACKAGE / folder).glob("*.py"):
        assert imported_connectors(file) <= {"base"}, file


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ticks(SourceConnector):
    """A toy source."""

    @property
    def shape(self):
        return Shape.JSON

    @property
    def details(self):
        return "every tick"

    def read(self, spark, analysis, plan):
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Siren(SinkConnector):
    """A toy sink."""

    @property
    def details(self):
        return "loud"

    def batch_writer(self, plan, checkpoint, *, numbered):
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pager(TopicSink):
    """A toy sink of topics."""

    system = "pager"

    def batch_writer(self, plan, checkpoint, *, numbered):
        raise NotImplementedError


def test_a_new_system_is_explained_by_its_module_alone(capsys):
    stream = DataStream(Job("toy"), Ticks(name="ticks")).filter("n > 1")
    stream._sink(Siren(name="siren", input=stream._node))
    stream._sink(Pager(name="pager", input=stream._node, topic="night", options={"password": "hidden"}))
    assert stream.explain().splitlines() == [
        "job toy",
        "  ticks     source  every tick",
        "  filter#1  native",
        "  siren     sink    loud  <- filter#1",
        "  pager     sink    pager night  <- filter#1",
    ]
    assert "hidden" not in repr(stream.plan())
    assert capsys.readouterr().out
