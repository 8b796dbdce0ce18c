"""The parts of a message besides its body, as columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.record.properties import PROPERTY_SHARDING_KEY, PROPERTY_WRITE_ID
from pyspark_rocketmq.sql.statements import MetadataColumn

__all__ = ["METADATA", "Metadata", "metadata_of"]


@dataclass(frozen=True, slots=True)
class Metadata:
    """A part of a message that can be read or written under a name.

    Parameters
    ----------
    type : str
        The Spark type.
    source : str, optional
        The source's column. None if it can only be written.
    sink : str, optional
        The sink's column. None if it can only be read.
    property : str, optional
        The property's name within the source's column ``properties``.
    doc : str
    """

    type: str
    source: str | None
    sink: str | None
    doc: str
    property: str | None = None

    def read(self) -> Column:
        """Return its expression on the source's columns."""
        assert self.source is not None
        column = F.col(self.source)
        return column if self.property is None else column[self.property]


_RW: Final = {
    "keys": ("string", "what the broker indexes, between spaces"),
    "tags": ("string", "the tag"),
    "properties": ("map<string,string>", "the user's properties; those that RocketMQ reserves are refused"),
    "flag": ("int", "stored, never looked at"),
    "traceparent": ("string", "the W3C trace context"),
}
_R: Final = {
    "topic": ("string", "the topic"),
    "brokerName": ("string", "the broker"),
    "queueId": ("int", "the queue at the broker"),
    "queueOffset": ("bigint", "the message's offset in its queue"),
    "msgId": ("string", "the id that the producer made"),
    "offsetMsgId": ("string", "the id that says where the message is stored"),
    "bornTimestamp": ("timestamp", "when the producer made it"),
    "storeTimestamp": ("timestamp", "when the broker stored it"),
    "bornHost": ("string", "the producer's address"),
    "storeHost": ("string", "the broker's address"),
    "reconsumeTimes": ("int", "how often consumers have sent it back"),
    "sysFlag": ("int", "the message's kind as bits"),
    "bodyCrc": ("int", "the body's checksum"),
}
_W: Final = {
    "delayLevel": ("int", "1 to 18: 1 s to 2 h"),
    "delay": ("bigint", "a delay in milliseconds; RocketMQ 5"),
    "deliverAt": ("timestamp", "when it may be consumed; RocketMQ 5"),
    "priority": ("int", "in topics of type PRIORITY; RocketMQ 5.4"),
}

METADATA: Final[Mapping[str, Metadata]] = {
    **{name: Metadata(kind, name, None, doc) for name, (kind, doc) in _R.items()},
    **{name: Metadata(kind, name, name, doc) for name, (kind, doc) in _RW.items()},
    "shardingKey": Metadata(
        "string", "properties", "shardingKey", "one queue, and an order, for each", PROPERTY_SHARDING_KEY
    ),
    "writeId": Metadata(
        "string", "properties", "writeId", "by which a reader drops repeats", PROPERTY_WRITE_ID
    ),
    **{name: Metadata(kind, None, name, doc) for name, (kind, doc) in _W.items()},
}
"""Every metadata column by its key."""

_BY_KEY: Final = {
    **{name.lower(): found for name, found in METADATA.items()},
    "offset": METADATA["queueOffset"],
    "timestamp": METADATA["storeTimestamp"],
    "key": METADATA["keys"],
    "tag": METADATA["tags"],
}


def metadata_of(column: MetadataColumn) -> Metadata:
    """Return the metadata of a column.

    Raises
    ------
    SqlError
        The metadata does not exist.
    """
    found = _BY_KEY.get(column.key.lower())
    if found is None:
        column.name.position.fail(f"there is no metadata {column.key!r}: use one of {', '.join(METADATA)}")
    return found
