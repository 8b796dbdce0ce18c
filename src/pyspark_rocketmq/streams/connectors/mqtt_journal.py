"""The journal of an MQTT source: messages on the driver's disk until their batch is finished."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from pyspark_rocketmq.errors import RocketMQError

__all__ = ["Journal"]


class Journal:
    """Received messages of unfinished batches, by number: a database in a file.

    Every method raises `RocketMQError` if the file cannot be read or written.

    Parameters
    ----------
    file : Path
        Its folder need not exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._explain():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(file, isolation_level=None, timeout=30)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS messages "
                "(n INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT, payload BLOB, time_ms INTEGER)"
            )

    def append(self, messages: list[tuple[str, bytes, int]]) -> None:
        """Add messages. They are on disk when this returns."""
        with self._transaction():
            self._database.executemany(
                "INSERT INTO messages (topic, payload, time_ms) VALUES (?, ?, ?)", messages
            )

    def bounds(self) -> tuple[int, int]:
        """Return the number before the first message, and that of the last message ever added."""
        with self._explain():
            first = self._database.execute("SELECT min(n) FROM messages").fetchone()[0]
            ends = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'")
            last = ends.fetchone()
        end = 0 if last is None else int(last[0])
        return (end if first is None else int(first) - 1), end

    def begin_after(self, number: int) -> None:
        """Set the next number above this one, because the journal that used it is lost."""
        with self._transaction():
            self._database.execute("DELETE FROM sqlite_sequence WHERE name = 'messages'")
            self._database.execute("INSERT INTO sqlite_sequence VALUES ('messages', ?)", (number,))

    def between(self, after: int, until: int) -> list[tuple[str, bytes, int]]:
        """Return messages by number, including the last one.

        Raises
        ------
        RocketMQError
            Some messages are no longer in the journal.
        """
        query = "SELECT topic, payload, time_ms FROM messages WHERE n > ? AND n <= ? ORDER BY n"
        with self._explain():
            rows = self._database.execute(query, (after, until)).fetchall()
        if len(rows) != until - after:
            raise RocketMQError(
                "messages of an unfinished batch are missing with their journal: restore it, or "
                "start with a new checkpoint",
                first=after + 1,
                last=until,
                found=len(rows),
            )
        return rows

    def forget(self, until: int) -> None:
        """Delete finished messages."""
        with self._explain():
            self._database.execute("DELETE FROM messages WHERE n <= ?", (until,))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explain():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            finally:
                if self._database.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._database.execute("ROLLBACK")

    @contextlib.contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise RocketMQError(
                f"the journal of MQTT messages cannot be read or written: {error}", file=self._file
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()
