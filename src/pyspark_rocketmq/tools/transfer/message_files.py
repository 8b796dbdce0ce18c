"""Files of messages, one record a message: JSON lines or Parquet."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from pyspark_rocketmq.errors import LocalProtocolError, OptionError
from pyspark_rocketmq.model import Message, OutgoingMessage
from pyspark_rocketmq.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    encode_properties,
    user_properties,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["FileMessage", "read_jsonl", "read_parquet", "write_jsonl", "write_parquet"]

_ROWS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 32 * 1024 * 1024
_TEXT: Final = "body"
_BYTES: Final = "bodyBase64"
_SENT: Final = ["brokerName", "queueId", "queueOffset", "keys", "tags", "flag", "properties", _TEXT]


@dataclass(frozen=True, slots=True)
class FileMessage:
    """A message of a file.

    Parameters
    ----------
    queue : tuple of (str, int)
        The broker and id of the queue that it was exported from.
    offset : int
        Its offset in that queue.
    """

    queue: tuple[str, int]
    offset: int
    body: bytes
    tags: str | None
    keys: str | None
    flag: int
    properties: dict[str, str]

    def outgoing(self, topic: str) -> OutgoingMessage:
        """Return the message to send, with its body, tag, keys, sharding key, flag and own properties.

        Properties that RocketMQ sets, such as the message's id, are those of the new message.
        """
        return OutgoingMessage(
            topic,
            self.body,
            tags=self.tags,
            keys=self.keys or (),
            properties=user_properties(self.properties),
            flag=self.flag,
            sharding_key=self.properties.get(PROPERTY_SHARDING_KEY),
        )


# --- writing ---


def write_jsonl(messages: Iterable[Message], file: IO[str]) -> int:
    """Write messages as JSON lines and return their number. A body that is not UTF-8 is in base64."""
    count = 0
    for message in messages:
        count += 1
        record = _facts(message)
        try:
            record[_TEXT] = message.body.decode()
        except UnicodeDecodeError:
            record[_BYTES] = base64.b64encode(message.body).decode()
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return count


def write_parquet(messages: Iterable[Message], path: Path) -> int:
    """Write messages to a Parquet file and return their number."""
    import pyarrow as pa  # noqa: PLC0415 - not for JSON lines
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = _schema()
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _chunks(messages):
            records = [{**_facts(message), _TEXT: message.body} for message in rows]
            writer.write_batch(pa.RecordBatch.from_pylist(records, schema))
            count += len(records)
    return count


def _facts(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "keys": message.keys,
        "tags": message.tags,
        "flag": message.flag,
        "properties": dict(message.properties),
    }


def _chunks(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield messages in lists that are limited by number and bytes."""
    rows: list[Message] = []
    size = 0
    for message in messages:
        rows.append(message)
        size += len(message.body)
        if len(rows) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    time = pa.timestamp("ms", "UTC")
    return pa.schema(
        {
            "topic": pa.string(),
            "brokerName": pa.string(),
            "queueId": pa.int32(),
            "queueOffset": pa.int64(),
            "msgId": pa.string(),
            "bornTimestamp": time,
            "storeTimestamp": time,
            "keys": pa.string(),
            "tags": pa.string(),
            "flag": pa.int32(),
            "properties": pa.map_(pa.string(), pa.string()),
            _TEXT: pa.binary(),
        }
    )


# --- reading ---


def read_jsonl(lines: Iterable[str], name: str) -> Iterator[FileMessage]:
    """Read messages from JSON lines.

    Raises
    ------
    OptionError
        A line is not a message. The error has its number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"the line is not JSON: {error}", file=name, line=number) from None
        yield _checked(record, _body, file=name, line=number)


def read_parquet(path: Path) -> Iterator[FileMessage]:
    """Read messages from a Parquet file.

    Raises
    ------
    OptionError
        The file is not Parquet, or has other columns. The error has the row's number.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as file:
            rows = itertools.chain.from_iterable(batch.to_pylist() for batch in _batches(file))
            for number, record in enumerate(rows, 1):
                yield _checked(record, lambda record: record[_TEXT], file=str(path), row=number)
    except (pa.ArrowException, OSError) as error:
        raise OptionError(f"the file cannot be read: {error}", file=str(path)) from error


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the columns that are sent, in batches that are limited by number and bytes."""
    for at in range(file.num_row_groups):
        group = file.metadata.row_group(at)
        row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
        rows = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // row_bytes))
        yield from file.iter_batches(rows, row_groups=[at], columns=_SENT)


def _body(record: dict[str, Any]) -> bytes:
    if "offsetMsgId" in record:
        raise ValueError("`consume --json` wrote it, which shows bodies and does not keep them")
    if _BYTES not in record:
        if not isinstance(body := record[_TEXT], str):
            raise TypeError("its body is not a text")
        return body.encode()
    return base64.b64decode(record[_BYTES], validate=True)


def _checked(record: Any, body: Callable[[dict[str, Any]], bytes], **where: object) -> FileMessage:
    """Return a record as a message; what it lacks is an error that says where."""
    try:
        message = FileMessage(
            queue=(str(record["brokerName"]), int(record["queueId"])),
            offset=int(record["queueOffset"]),
            body=body(record),
            tags=record.get("tags"),
            keys=record.get("keys"),
            flag=int(record.get("flag") or 0),
            properties=dict(record.get("properties") or {}),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, binascii.Error) as error:
        missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise OptionError(f"not a message that `export` wrote: {missing}", **where) from None
    texts = (message.tags, message.keys, *message.properties, *message.properties.values())
    if not isinstance(message.body, bytes) or not all(
        text is None or isinstance(text, str) for text in texts
    ):
        raise OptionError("not a message that `export` wrote: tags, keys and properties are texts", **where)
    try:  # what no broker takes is found before anything is sent
        own = {PROPERTY_TAGS: message.tags or "", PROPERTY_KEYS: message.keys or ""}
        encode_properties({**message.outgoing("any").properties, **own})
    except (OptionError, LocalProtocolError) as error:
        raise OptionError(error.message, **where) from None
    return message
