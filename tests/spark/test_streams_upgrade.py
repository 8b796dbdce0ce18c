"""Stream jobs continue from checkpoints of earlier releases: golden files, which those releases wrote."""

from __future__ import annotations

import pytest
from tests.golden.stream_jobs import AFTER, CHECKPOINTS, JOBS, restore, run

pytestmark = pytest.mark.usefixtures("lean")

ARCHIVES = sorted(CHECKPOINTS.glob("*/streams/*.zip"))
"""A file for each release and job."""

ALWAYS = {"windows", "fired-again"}
"""Spark's state and our own: these jobs run in every `make test`."""

OWN_STATE = {"fired-again", "incremental", "groups", "processed", "latest"}
"""These keep state in Python workers, which needs Spark 4.1."""

A = {"k": "a", "start_time": "2030-01-01 00:00:00"}
B = {"k": "b", "start_time": "2030-01-01 00:00:10"}
OF_A = {"rows": 3, "first": "5", "last": "12", "concat": "5,7,12", "least": "5", "exact": 3, "large": 3}
OF_B = {"rows": 1, "first": "x", "last": "x", "concat": "x", "least": "x", "exact": 1, "large": 1}
AGGREGATES = [{**A, **OF_A, "avg": 8.0}, {**B, **OF_B}]

EXPECTED = {
    "windows": AGGREGATES,
    "fired-again": AGGREGATES,
    "incremental": [{**A, "values": ["5", "12", "7"]}, {**B, "values": ["x"]}],
    "sessions": [{"k": "a", "rows": 3}, {"k": "b", "rows": 1}],
    "ranked": [{**A, "rows": 3, "rank": 1}, {**B, "rows": 1, "rank": 1}],
    "distinct": [{"k": "z"}],
    "groups": [{"key": "a", "value": 3}, *({"key": "z", "value": count} for count in (1, 2))],
    "processed": [{"k": "a", "rows": 3}, *({"k": "z", "rows": count} for count in (1, 2))],
    "joined": [
        *({"k": "a", "v": left, "right_v": right} for left, right in (("5", "7"), ("7", "7"), ("7", "12"))),
        *[{"k": "z", "v": "0", "right_v": "0"}] * 4,
    ],
    "latest": [{"value": '{"k": "a", "even": "12", "odd": "7"}'}],
}
"""All results after the upgrade, computed by hand from the records before and after it."""


def _marks(job: str) -> list[pytest.MarkDecorator]:
    return [
        *([] if job in ALWAYS else [pytest.mark.needs("releases")]),
        *([pytest.mark.since_spark("4.1")] if job in OWN_STATE else []),
    ]


def test_every_release_has_a_checkpoint_of_each_job():
    releases = {path.name for path in CHECKPOINTS.iterdir()}
    assert {(path.parts[-3], path.stem) for path in ARCHIVES} == {(r, job) for r in releases for job in JOBS}
    assert set(EXPECTED) == set(JOBS)


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(
            archive,
            id=f"{archive.parts[-3]}-{archive.stem}",
            marks=_marks(archive.stem),
        )
        for archive in ARCHIVES
    ],
)
def test_a_job_continues_from_a_checkpoint_of_an_earlier_release(spark, tmp_path, monkeypatch, archive):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    job = archive.stem
    rows = run(spark, job, AFTER, restore(archive, tmp_path))
    names = EXPECTED[job][0]
    found = [{name: row[name] for name in names if name in row} for row in rows]
    assert sorted(found, key=str) == sorted(EXPECTED[job], key=str)
