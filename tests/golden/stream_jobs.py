"""Stream jobs whose checkpoints are golden files: one for each way of keeping state."""

# ruff: noqa: ARG002, N803 - the parameters' names are RocketMQ Streams' and Spark's

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from pyspark_rocketmq.streams import (
    CheckpointStrategy,
    DataStream,
    RStream,
    SessionWindow,
    StatefulProcessor,
    StreamBuilder,
    Time,
    TumblingWindow,
)
from pyspark_rocketmq.streams.run.runner import finish

CHECKPOINTS = Path(__file__).parent / "checkpoints"

EPOCH_MS = 1_893_456_000_000
"""The start of 2030."""

BEFORE = [[(1, "a", "5"), (4, "a", "12")], [(11, "b", "x")]]
"""The files that a job has read when its checkpoint is captured: seconds, keys and values."""

AFTER = [[(3, "a", "7")], [(30, "z", "0")], [(30, "z", "0")]]
"""The files that the job reads after the upgrade: a record that is out of order, then the ends of windows."""

_PLACE = "/place"
"""Replaces the folder in which a checkpoint was captured."""

_FILE_TIME_S = 1_600_000_000
_ZIP_TIME = (2030, 1, 1, 0, 0, 0)
_WINDOW = TumblingWindow.of(Time.seconds(10), "t")

Files = Sequence[Sequence[tuple[int, str, str]]]
Stream = DataStream | RStream


# Spark's workers cannot import tests: these classes are local, so that they are pickled with their code.


def _values() -> Any:
    class Values:
        def __init__(self) -> None:
            self.values: list[str] = []

        def addValue(self, value: Any) -> None:
            self.values.append(value["v"])

        def result(self, context: Any) -> Any:
            return self.values

        def clone(self) -> Values:
            return Values()

    return Values()


def _counts() -> StatefulProcessor:
    class Counts(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("count", "n bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            self.count.update(((self.count.get() or (0,))[0] + len(list(rows)),))
            yield Row(k=key[0], rows=self.count.get()[0])

    return Counts()


def _aggregate(stream: DataStream) -> Any:
    windows = stream.window(_WINDOW).groupBy("k").count("rows").waterMark(5)
    windows = windows.first("v", "first").last("v", "last").concat("v", "concat").min("v", "least")
    return windows.count_distinct("v", "exact").count_distinct_large("v", "large").avg("v", "avg")


def _rank(stream: DataStream) -> DataStream:
    counts = stream.window(_WINDOW).groupBy("k").count("rows").waterMark(5).toDataStream()
    return counts.topN("rank", 1).addOrderByFieldName("rows").toDataStream()


def _join(left: DataStream, right: DataStream) -> DataStream:
    left, right = (side.selectTimestamp("t").selectFields("k", "v") for side in (left, right))
    pairs = left.join(right).interval(Time.milliseconds(1), Time.seconds(9)).waterMark(20)
    return pairs.on("(k,==,k)").toDataStream()


def _values_of(stream: DataStream) -> RStream:
    return RStream(stream._job, stream._node)


def _join_latest(left: DataStream, right: DataStream) -> RStream:
    even = _values_of(left).filter(lambda value: value["t"] % 2000 == 0)
    odd = _values_of(right).filter(lambda value: value["t"] % 2000 != 0)
    keyed = even.join(odd).where(lambda value: value["k"]).equalTo(lambda value: value["k"])
    return keyed.apply(lambda found, other: {"k": found["k"], "even": found["v"], "odd": other["v"]})


ONE: dict[str, Callable[[DataStream], Stream]] = {
    "windows": lambda stream: _aggregate(stream).toDataStream(),
    "fired-again": lambda stream: _aggregate(stream).fireMode(2).toDataStream(),
    "incremental": lambda stream: (
        stream.window(_WINDOW)
        .groupBy("k")
        .aggregate(_values(), "values", incremental=True)
        .waterMark(5)
        .toDataStream()
    ),
    "sessions": lambda stream: (
        stream.window(SessionWindow.of(Time.seconds(5), "t"))
        .groupBy("k")
        .count("rows")
        .waterMark(5)
        .toDataStream()
    ),
    "ranked": _rank,
    "distinct": lambda stream: (
        stream.selectTimestamp("t").selectFields("k").distinct("k", windowSizeSecond=100)
    ),
    "groups": lambda stream: _values_of(stream).keyBy(lambda value: value["k"]).count(),
    "processed": lambda stream: stream.selectFields("k").process("k", _counts(), "k string, rows bigint"),
}
"""Pipelines over a stream of JSON records with the fields t, k and v."""

TWO: dict[str, Callable[[DataStream, DataStream], Stream]] = {"joined": _join, "latest": _join_latest}
"""Pipelines over two such streams."""

JOBS = (*ONE, *TWO)


def write_files(folder: Path, files: Files) -> None:
    """Add files that Spark reads one by one."""
    folder.mkdir(exist_ok=True)
    for number, records in enumerate(files, start=len(list(folder.iterdir()))):
        lines = [json.dumps({"t": EPOCH_MS + second * 1000, "k": k, "v": v}) for second, k, v in records]
        file = folder / f"{number:03d}.json"
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (_FILE_TIME_S + number, _FILE_TIME_S + number))  # Spark reads the oldest first


def input_of(checkpoint: Path) -> Path:
    """Return the folder of a job's files. Spark reads the last batch of a checkpoint again."""
    return checkpoint.with_name(f"{checkpoint.name}-in")


def run(spark: SparkSession, job: str, files: Files, checkpoint: Path) -> list[Any]:
    """Run a job over more files, a batch each, and return its results."""
    folder = input_of(checkpoint)
    write_files(folder, files)
    found: list[Any] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend(json.loads(row[0]) for row in batch.select(sf.to_json(sf.struct("*"))).collect())

    source = StreamBuilder.dataStream("golden", job, spark)

    def read() -> DataStream:
        return source.fromFile(str(folder), tail=True, maxFilesPerTrigger=1)

    stream = ONE[job](read()) if job in ONE else TWO[job](read(), read())
    CheckpointStrategy.local(str(checkpoint)).apply(stream._job)
    query = stream.to(take).asyncStart(availableNow=True)
    assert query is not None
    try:
        assert query.awaitTermination(800)
    finally:
        query.stop()
        finish(query)
    return found


def keep(checkpoint: Path, archive: Path) -> None:
    """Write a checkpoint to a zip file, without checksums, locks and the place where it was captured."""
    _replace_place(checkpoint, str(checkpoint.parent), _PLACE)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(checkpoint.rglob("*")):
            if path.is_file() and path.suffix not in {".crc", ".lock"}:
                name = str(path.relative_to(checkpoint))
                file.writestr(zipfile.ZipInfo(name, _ZIP_TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)


def restore(archive: Path, folder: Path) -> Path:
    """Restore a captured checkpoint and its job's files in a folder, and return the checkpoint's path."""
    checkpoint = folder / archive.stem
    write_files(input_of(checkpoint), BEFORE)
    with zipfile.ZipFile(archive) as file:
        file.extractall(checkpoint)
    _replace_place(checkpoint, _PLACE, str(folder))
    return checkpoint


def _replace_place(checkpoint: Path, place: str, new: str) -> None:
    """Replace absolute paths: Spark writes them to the log of read files and to the state's metadata."""
    for file in (*checkpoint.glob("sources/*/*"), *checkpoint.glob("state/*/_metadata/v2/*")):
        if not file.name.endswith(".crc"):
            file.write_text(file.read_text().replace(f"{place}/", f"{new}/"))
