"""A connector is one module: everything else asks a node what it can do."""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import grimp
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
    imported = {file: imported_connectors(file) for file in (PACKAGE / folder).glob("*.py")}
    assert len(imported) > 3
    assert {file: names for file, names in imported.items() if not names <= {"base"}} == {}


def test_the_path_of_a_window_goes_one_way():
    """CONTRIBUTING.md lists the modules from the user's call down: each calls those after it, never back."""
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    path = page.partition("A window, from the user's call")[2].partition("##")[0]
    modules = re.findall(r"^\d\. `streams/([\w/]+)\.py`", path, re.MULTILINE)
    assert 5 <= len(modules) <= 8
    graph = grimp.build_graph("pyspark_rocketmq", cache_dir=None)
    names = [f"pyspark_rocketmq.streams.{module.replace('/', '.')}" for module in modules]
    for at, name in enumerate(names):
        for earlier in names[:at]:
            assert not graph.chain_exists(importer=name, imported=earlier), (name, earlier)
    for start, then in itertools.pairwise(names[1:]):
        assert graph.chain_exists(importer=start, imported=then), (start, then)


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
