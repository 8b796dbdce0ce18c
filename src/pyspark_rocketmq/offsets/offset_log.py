"""One entry of a query's offset log: the file ``offsets/<batch>`` of Spark's checkpoints, version 1 or 2."""

# Facts (OffsetSeqLog of Spark 4.3): a line with the version, a line of metadata as JSON, and a line per
# source with its end offset, `-` for none. Version 1 has the sources by position. Version 2, which queries
# with named sources write, has `name:offset` in any order, of the sources that the query had in this batch.

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.offsets.stream_offset import SourceOffset, offset_of_rocketmq

__all__ = ["OffsetLogEntry"]

_POSITIONS: Final = "v1"
_NAMES: Final = "v2"


@dataclass(frozen=True, slots=True)
class OffsetLogEntry:
    """The end offsets of a batch.

    Parameters
    ----------
    version : str
    metadata : str
        JSON: the watermark, and settings that the query keeps.
    sources : mapping of str to str
        Each source's end offset as text, in the order of the file, by its name or position from 0.
    """

    version: str
    metadata: str
    sources: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the content of a file.

        Raises
        ------
        OptionError
            The file is incomplete, or of a version that this release does not know.
        """
        version, *lines = text.splitlines() or [""]
        if version not in {_POSITIONS, _NAMES}:
            raise OptionError(
                f"the offset log is of version {version or 'none'!r}, this release reads {_POSITIONS} and "
                f"{_NAMES}"
            )
        if not lines:
            raise OptionError("an entry of the offset log is incomplete")
        metadata, *offsets = lines
        if version == _POSITIONS:
            return cls(version, metadata, {str(number): line for number, line in enumerate(offsets)})
        named = [line.partition(":") for line in offsets]
        if not all(colon for _, colon, _ in named):
            raise OptionError("an entry of the offset log has an offset without its source's name")
        return cls(version, metadata, {name: offset for name, _, offset in named})

    def text(self) -> str:
        """Return the content of the file."""
        positions = self.version == _POSITIONS
        offsets = (text if positions else f"{name}:{text}" for name, text in self.sources.items())
        return "\n".join((self.version, self.metadata, *offsets))

    @property
    def watermark_ms(self) -> int:
        """The batch's watermark, in milliseconds since the epoch; 0 if there was none yet."""
        return int(json.loads(self.metadata)["batchWatermarkMs"])

    def of_rocketmq(self) -> dict[str, SourceOffset]:
        """Return the end offsets of the sources that are this package's."""
        found = {name: offset_of_rocketmq(text) for name, text in self.sources.items()}
        return {name: offset for name, offset in found.items() if offset is not None}

    def moved(self, source: str, offset: SourceOffset) -> Self:
        """Return this entry with another end offset of one source."""
        return replace(self, sources={**self.sources, source: json.dumps(offset.to_dict())})
