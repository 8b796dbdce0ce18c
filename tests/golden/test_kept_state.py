"""A job continues from what an earlier release kept: decisions, offsets in stores, the state of streams."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.golden.kept_state import (
    CHECKPOINTS,
    DATABASE,
    DECISION,
    FILE,
    PROGRESS,
    STATE,
    TRANSACTIONS,
    Spark,
    from_document,
    plain,
    to_document,
    write_database,
    write_decision,
)

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.stores.offset_store import _from_document, _to_document
from pyspark_rocketmq.spark.stores.sql_store import SqlOffsetStore
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog

RELEASES = sorted(path.name for path in CHECKPOINTS.iterdir())
LATEST = CHECKPOINTS / RELEASES[-1]
OWNER = DECISION.name.owner


@pytest.mark.parametrize("release", RELEASES)
def test_a_commit_that_an_earlier_release_decided_is_completed(release: str, tmp_path: Path) -> None:
    shutil.copytree(CHECKPOINTS / release / TRANSACTIONS, tmp_path / "log")
    log = TransactionLog(str(tmp_path / "log"))
    assert (log.owners(), log.newest_done(OWNER), log.undone(OWNER)) == ((OWNER,), 6, (7,))
    assert log.read(DECISION.name) == DECISION
    before = log.newest_claim(OWNER)
    assert before is not None
    assert log.claim(OWNER) > before, "it fences the earlier release's process"
    log.finish(DECISION.name)
    assert (log.newest_done(OWNER), log.undone(OWNER)) == (7, ())


def test_a_decision_of_an_unknown_version_is_not_guessed_at(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pyspark_rocketmq.spark.write.transaction_log._VERSION", "2")
    write_decision(tmp_path)
    monkeypatch.undo()
    with pytest.raises(RocketMQError, match="another release wrote this decision"):
        TransactionLog(str(tmp_path)).read(DECISION.name)


@pytest.mark.parametrize("release", RELEASES)
def test_a_store_of_an_earlier_release_is_continued(release: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "kept.db")) as connection:
        connection.executescript((CHECKPOINTS / release / DATABASE).read_text(encoding="utf-8"))
    store = SqlOffsetStore(f"sqlite:///{tmp_path}/kept.db", job="report")
    with store.transaction() as transaction:
        assert transaction.progress() == PROGRESS
    store.close()
    text = (CHECKPOINTS / release / FILE).read_text(encoding="utf-8")
    assert _from_document(text) == PROGRESS


def test_this_release_writes_the_same_stores(tmp_path: Path) -> None:
    assert write_database(tmp_path / "new.db") == (LATEST / DATABASE).read_text(encoding="utf-8")
    assert _to_document(PROGRESS) == (LATEST / FILE).read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", STATE)
def test_a_stream_continues_from_the_state_of_an_earlier_release(release: str, name: str) -> None:
    document = json.loads((CHECKPOINTS / release / name).read_text(encoding="utf-8"))
    make, key, first, then = STATE[name]
    kept, alone = Spark(from_document(document)), Spark()
    alone.run(make(), key, first)
    assert kept.run(make(), key, then) == alone.run(make(), key, then)
    assert plain(kept.values) == plain(alone.values)


@pytest.mark.parametrize("name", STATE)
def test_this_release_keeps_the_same_state(name: str) -> None:
    document = json.loads((LATEST / name).read_text(encoding="utf-8"))
    make, key, first, _ = STATE[name]
    spark = Spark()
    spark.run(make(), key, first)
    assert to_document(spark)["schemas"] == document["schemas"]
    assert plain(spark.values) == plain(from_document(document))
