"""Rows that cannot be sent: they fail the write, or are stored as dead letters with the cause."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyspark_rocketmq.client.send.message_encoding import Outgoing, encode_one
from pyspark_rocketmq.client.send.producer import Producer
from pyspark_rocketmq.client.send.send_pipeline import SendOutcome, SendPipeline
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.record.compress import decompress
from pyspark_rocketmq.record.encode.outgoing_rows import MessageColumns
from pyspark_rocketmq.record.properties import decode_properties
from pyspark_rocketmq.spark.filesystem import file_errors, file_system

__all__ = ["PROPERTY_CAUSE", "PROPERTY_TOPIC", "DeadLetter", "DeadLetters"]

PROPERTY_CAUSE: Final = "deadLetterCause"
PROPERTY_TOPIC: Final = "deadLetterTopic"
PROPERTY_BODY_BYTES: Final = "deadLetterBodyBytes"

_DEAD: Final = object()
"""The token of a dead letter's send."""

_MAX_CAUSE: Final = 1_000
_MAX_TEXT_BYTES: Final = 8_000
"""Of a topic, of tags and of keys: a message's properties have 32,767 bytes in all."""

_FLUSH_ROWS: Final = 10_000
_SCHEMA: Final = pa.schema(
    [
        ("cause", pa.string()),
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("body", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A row that cannot be sent, and why."""

    cause: str
    topic: str | None
    body: bytes
    tags: str | None = None
    keys: str | None = None

    @classmethod
    def of_row(cls, columns: MessageColumns, row: int, cause: str, topic: str | None) -> Self:
        """Return the dead letter of a row."""

        def text(column: pa.Array | None) -> str | None:
            value = None if column is None else column[row].as_py()
            return None if value is None else value.decode(errors="replace")

        return cls(
            cause=cause,
            topic=topic if columns.topic is None else text(columns.topic),
            body=columns.body[row].as_py() or b"",
            tags=text(columns.tags),
            keys=text(columns.keys),
        )

    @classmethod
    def of_outgoing(cls, outgoing: Outgoing, cause: str) -> Self:
        """Return the dead letter of an encoded message."""
        properties = decode_properties(outgoing.properties.encode())
        return cls(
            cause=cause,
            topic=outgoing.topic,
            body=decompress(outgoing.body, outgoing.sys_flag),
            tags=properties.get("TAGS"),
            keys=properties.get("KEYS"),
        )


class DeadLetters:
    """The dead letters of one task. Without a destination, the first one fails the task.

    In a topic, a dead letter is a message with the row's body, keys and tag and the properties
    ``deadLetterCause``, ``deadLetterTopic`` and ``deadLetterBodyBytes``; a body that is too large is
    truncated. In a folder, dead letters are Parquet files, named after the write and the partition: a task
    that runs again replaces its file, and no other write's. Each attempt writes a separate hidden file and
    renames it.

    Parameters
    ----------
    producer : Producer
    options : SinkOptions
    write : str
        Id of the write that the task is part of: unique per write, equal for all attempts.
    partition : int
    """

    def __init__(self, producer: Producer, options: SinkOptions, write: str, partition: int) -> None:
        self.count = 0
        self._producer = producer
        self._options = options
        self._waiting: list[DeadLetter] = []
        self._file_name = f"part-{hashlib.sha256(write.encode()).hexdigest()[:32]}-{partition:05d}.parquet"
        self._file: _HiddenFile | None = None

    def add(self, letter: DeadLetter) -> None:
        """Add a dead letter.

        Raises
        ------
        OptionError
            Dead letters have no destination.
        RocketMQError
            Their folder cannot be written.
        """
        if self._options.is_staged:  # a broker refused it in the staging topic
            letter = replace(letter, topic=self._options.topic)
        if not self._options.takes_dead_letters:
            raise OptionError(
                f"a row cannot be sent: {letter.cause} "
                "(set deadLetterTopic or deadLetterPath to put such rows aside)",
                topic=letter.topic,
                keys=letter.keys,
                body_bytes=len(letter.body),
            )
        self.count += 1
        self._waiting.append(letter)
        if self._options.dead_letter_path is not None and len(self._waiting) >= _FLUSH_ROWS:
            self._write()

    def takes(self, outcome: SendOutcome) -> bool:
        """Return whether a message that the broker rejected may become a dead letter (not a dead letter)."""
        return self._options.takes_dead_letters and outcome.token is not _DEAD

    def submit(self, pipeline: SendPipeline) -> list[SendOutcome]:
        """Send pending dead letters, if they go to a topic; return the outcomes available so far."""
        outcomes: list[SendOutcome] = []
        if self._options.dead_letter_topic is None:
            return outcomes
        while self._waiting:
            message = self._message(self._waiting.pop(), self._options.dead_letter_topic)
            outcomes += pipeline.submit(encode_one(message, self._producer.ids), loose=True, token=_DEAD)
        return outcomes

    @property
    def unsent(self) -> bool:
        """Whether dead letters wait to be sent to their topic."""
        return self._options.dead_letter_topic is not None and bool(self._waiting)

    def close(self) -> None:
        """Finish the task's file: it appears complete, under its name, or not at all.

        Raises
        ------
        RocketMQError
            The folder cannot be written.
        """
        if self._options.dead_letter_path is not None and self._waiting:
            self._write()
        if self._file is not None:
            with self._explain():
                self._file.show()
            self._file = None

    def abandon(self) -> None:
        """Remove the file of a failed task."""
        if self._file is not None:
            self._file.remove()
            self._file = None

    def _write(self) -> None:
        rows = [
            {"cause": letter.cause, "topic": letter.topic, "tags": letter.tags, "keys": letter.keys,
             "body": letter.body}
            for letter in self._waiting
        ]  # fmt: skip
        with self._explain():
            if self._file is None:
                assert self._options.dead_letter_path is not None
                filesystem, folder = file_system(self._options.dead_letter_path)
                self._file = _HiddenFile(filesystem, folder, self._file_name)
            self._file.writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
        self._waiting.clear()

    def _explain(self) -> contextlib.AbstractContextManager[None]:
        folder = self._options.dead_letter_path
        return file_errors(
            "the folder of dead letters cannot be written", option="deadLetterPath", folder=folder
        )

    def _message(self, letter: DeadLetter, topic: str) -> OutgoingMessage:
        limit = self._options.max_message_bytes
        properties = {
            PROPERTY_CAUSE: _printable(letter.cause)[:_MAX_CAUSE],
            PROPERTY_TOPIC: _printable(letter.topic or ""),
            PROPERTY_BODY_BYTES: str(len(letter.body)),
        }
        return OutgoingMessage(
            topic=topic,
            body=letter.body[:limit] or letter.cause.encode(),
            tags=_printable(letter.tags),
            keys=_printable(letter.keys) or (),
            properties=properties,
        )


class _HiddenFile:
    """A file that belongs to one attempt until it is complete: two attempts may write concurrently."""

    def __init__(self, filesystem: fs.FileSystem, folder: str, name: str) -> None:
        filesystem.create_dir(folder, recursive=True)
        self._filesystem = filesystem
        self._path = f"{folder}/{name}"
        self._hidden = f"{folder}/.{name}.{uuid.uuid4().hex}"
        self.writer = pq.ParquetWriter(self._hidden, _SCHEMA, filesystem=filesystem)

    def show(self) -> None:
        """Rename the file, replacing that of another attempt."""
        self.writer.close()
        try:
            self._filesystem.move(self._hidden, self._path)
        except OSError:  # HDFS does not rename over a file of an attempt whose end was not recorded
            if self._filesystem.get_file_info(self._path).type is not fs.FileType.File:
                raise
            self._filesystem.delete_file(self._path)
            self._filesystem.move(self._hidden, self._path)

    def remove(self) -> None:
        """Remove the file. If that fails, it stays hidden."""
        with contextlib.suppress(OSError):
            self.writer.close()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._hidden)


def _printable(text: str | None) -> str:
    """Return a text that is valid in a property, cut to the bytes that all of them have room for."""
    cut = (text or "").encode()[:_MAX_TEXT_BYTES].decode(errors="ignore")
    return cut.replace("\x01", "?").replace("\x02", "?")
