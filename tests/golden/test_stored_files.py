"""Files and tables of earlier releases are read by this one, which still writes them in the same way."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.golden import stored_files as stored

from pyspark_rocketmq.client.groups.push_progress import FileProgress
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.offsets.direct_log import decode_ends, decode_ranges, next_offsets
from pyspark_rocketmq.planning.batch_replay import BatchId, StoredProgress
from pyspark_rocketmq.spark.stores.offset_store import decode_progress
from pyspark_rocketmq.spark.stores.sql_store import SqlOffsetStore
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog
from pyspark_rocketmq.streams.run.job_registry import find_job

RELEASES = sorted(path.name for path in stored.CHECKPOINTS.iterdir())


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a release's files."""
    return Path(shutil.copytree(stored.CHECKPOINTS / request.param, tmp_path / request.param))


def test_a_decision_is_carried_out_by_a_later_release(release: Path):
    log = TransactionLog(str(release / "transactions"))
    assert log.owners() == (stored.OWNER,)
    assert (log.newest_done(stored.OWNER), log.undone(stored.OWNER)) == (41, (42,))
    decision = log.read(stored.DECISION.name)
    assert decision.halves.equals(stored.DECISION.halves)
    kept = ("name", "group", "ordered", "since")
    assert [getattr(decision, name) for name in kept] == [getattr(stored.DECISION, name) for name in kept]
    before = log.newest_claim(stored.OWNER)
    assert before is not None
    assert log.claim(stored.OWNER) > before
    log.finish(decision.name)
    assert (log.newest_done(stored.OWNER), log.undone(stored.OWNER)) == (42, ())


def test_a_direct_stream_of_a_later_release_continues_after_the_last_finished_batch(release: Path):
    assert next_offsets(release / "direct") == {stored.A0: 100, stored.P0: 3}
    folder = release / "direct" / "rocketmq-0"
    planned = {time: list(decode_ranges((folder / str(time)).read_text()) or ()) for time in stored.PLANNED}
    assert planned == stored.PLANNED
    assert decode_ends((folder / "ends-1000").read_text()) == stored.FINISHED


def test_a_store_of_an_earlier_release_is_continued(release: Path):
    assert decode_progress((release / "stores" / "offsets.json").read_text()) == stored.PROGRESS
    database = release / "store.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript((release / "stores" / "offsets.sql").read_text())
    store = SqlOffsetStore(f"sqlite:///{database}", job="totals")
    following = BatchId(stored.OWNER, 42)
    with store.transaction() as transaction:
        before = transaction.progress()
        assert before == stored.PROGRESS
        transaction.advance(before, following, [OffsetRange(stored.A0, 150, 160)])
    with store.transaction() as transaction:
        assert transaction.progress() == StoredProgress({**stored.OFFSETS, stored.A0: 160}, following)
    store.close()


def test_jobs_of_an_earlier_release_are_listed(release: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(release))
    assert find_job(stored.JOB.job) == stored.JOB


def test_a_broadcasting_member_continues(release: Path):
    assert FileProgress(release / "member.json").read([*stored.OFFSETS]) == stored.OFFSETS


def test_this_release_writes_what_it_always_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What another release wrote under other names, this one would not find."""
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path))
    for write in stored.WRITERS:
        write(tmp_path)

    def contents(folder: Path) -> dict[str, str | None]:
        files = {path: str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        return {
            name: None if "transactions" in name else path.read_text()
            for path, name in files.items()
            if name.endswith((".json", ".sql", ".done")) or name.startswith("direct")
        }

    written, golden = contents(tmp_path), contents(stored.CHECKPOINTS / RELEASES[0])
    assert written == {name: golden[name] for name in written}
    assert len(written) == 8
