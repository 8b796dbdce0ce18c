"""A pipeline in words and as a diagram."""

from __future__ import annotations

import json

import pytest
from tests.unit.streams.small_pipelines import Last, grouped, processed, stream, typed

from pyspark_rocketmq.streams import StreamBuilder, Time
from pyspark_rocketmq.streams.plan.explain import draw_plan, explain_plan, steps


def latest():
    job = StreamBuilder("grouped")
    sides = job.source("left").join(job.source("right")).where(str).equalTo(str)
    return sides.apply(lambda left, right: [left, right])


def joined():
    windows = typed().join(typed()).on("(k,==,k)").window(Time.seconds(5))
    return windows.toDataStream()


PYTHON = "python  runs for each record in Python workers"
OWN = "state in Python workers"


@pytest.mark.parametrize(
    ("end", "lines"),
    [
        (
            lambda: stream(is_json=False).map(json.loads).map(lambda r: r["n"] + 1),
            ["map#2           native  lifted: ParseJson", f"map#3           {PYTHON}"],
        ),
        (
            lambda: typed().filter("v > 1").distinct("k", "v").selectFields("k"),
            [
                "filter#2        native",
                "distinct#3      native  k, v",
                "selectFields#4  native  k",
            ],
        ),
        (
            lambda: grouped().sum("v").toRStream(),
            [f"key#2      {PYTHON}", "sum#3      native  by key: value=sum(v); results change"],
        ),
        (
            lambda: grouped().aggregate(Last(), incremental=True).toRStream(),
            [
                f"key#2         {PYTHON}",
                f"accumulate#3  python  by key, {OWN}: value=accumulate(...); results change",
            ],
        ),
        (
            lambda: processed("eventTime"),
            [f"process#2       python  Passed by k, time eventTime, {OWN}"],
        ),
        (
            latest,
            [
                f"key#4      {PYTHON}",
                "source#2   source  topic right as json",
                f"key#5      {PYTHON}",
                f"join#3     python  each value with the latest of the other side, {OWN}  <- key#4, key#5",
            ],
        ),
        (
            joined,
            [
                "fromRocketmq#1  source  topic topic as columns",
                "join#2          native  (k,==,k)  <- fromRocketmq#1, fromRocketmq#1",
            ],
        ),
    ],
)
def test_steps_are_described_in_words(end, lines):
    plan = end().toPrint().plan()
    shown = [line.removeprefix("  ") for line in explain_plan(plan).splitlines()]
    assert shown[2:-1] == lines
    for step, line in zip(steps(plan), shown[1:], strict=True):
        name, kind, *_ = line.split()
        assert (step.name, step.kind, step.details in line) == (name, kind, True)


def test_a_step_that_feeds_two_is_named_by_both():
    source = typed()
    source.filter("v > 1").toPrint()
    text = explain_plan(source.filter("v < 1").toPrint().plan())
    assert text.splitlines()[2::2] == [
        "  filter#2        native  <- fromRocketmq#1",
        "  filter#4        native  <- fromRocketmq#1",
    ]


DIAGRAM = """
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 602 354" width="602" height="354" \
font-family="sans-serif" font-size="12">
<title>tests.analysis</title>
<line x1="159" y1="80" x2="159" y2="114" stroke="#64748b"/>
<line x1="159" y1="160" x2="159" y2="194" stroke="#64748b"/>
<line x1="443" y1="80" x2="159" y2="194" stroke="#64748b"/>
<line x1="159" y1="240" x2="159" y2="274" stroke="#64748b"/>
<rect x="34" y="34" width="250" height="46" rx="6" fill="#dbeafe" stroke="#64748b"/>
<text x="44" y="53" font-weight="bold">fromRocketmq#1 · source</text>
<text x="44" y="70">topic topic as columns</text>
<rect x="318" y="34" width="250" height="46" rx="6" fill="#dbeafe" stroke="#64748b"/>
<text x="328" y="53" font-weight="bold">fromRocketmq#1 · source</text>
<text x="328" y="70">topic topic as columns</text>
<rect x="34" y="114" width="250" height="46" rx="6" fill="#fef3c7" stroke="#64748b"/>
<text x="44" y="133" font-weight="bold">process#2 · python</text>
<text x="44" y="150">Passed by k, time eventTime, state in Pyt…</text>
<rect x="34" y="194" width="250" height="46" rx="6" fill="#dcfce7" stroke="#64748b"/>
<text x="44" y="213" font-weight="bold">union#3 · native</text>
<text x="44" y="230">
</text>
<rect x="34" y="274" width="250" height="46" rx="6" fill="#ede9fe" stroke="#64748b"/>
<text x="44" y="293" font-weight="bold">toPrint#4 · sink</text>
<text x="44" y="310">
</text>
</svg>
"""


def test_the_diagram_has_a_row_of_boxes_for_each_depth_and_lines_between_them():
    picture = draw_plan(processed("eventTime").union(typed()).toPrint().plan())
    assert picture.replace("><", ">\n<") == DIAGRAM.strip()


def test_fields_are_escaped_in_the_diagram_and_fill_their_box():
    picture = draw_plan(typed().selectFields("k<v", "x" * 37).toPrint().plan())
    assert f">k&lt;v, {'x' * 37}<" in picture
    assert f">k&lt;v, {'x' * 36}…<" in draw_plan(typed().selectFields("k<v", "x" * 38).toPrint().plan())
