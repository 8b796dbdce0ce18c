"""Names that only programs written for RocketMQ Streams need; new programs use the primary spelling."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from pyspark_rocketmq.streams.api.job import Job, Strategy
from pyspark_rocketmq.streams.plan.choices import FireMode

__all__ = [
    "ConsumerProperty",
    "DataStreamNames",
    "NoEffect",
    "ResultNames",
    "ShuffleStrategy",
    "SourceNames",
    "WindowNames",
]

S_co = TypeVar("S_co", covariant=True)


class ResultNames(ABC, Generic[S_co]):
    """RocketMQ Streams' spelling of ``toDataStream``."""

    __slots__ = ()

    @abstractmethod
    def toDataStream(self) -> S_co:
        """Return the results as a stream."""

    def toDataSteam(self) -> S_co:
        """Return the results as a stream, as ``toDataStream``."""
        return self.toDataStream()

    to_data_steam = toDataSteam


class WindowNames(ABC):
    """Second names of a window's settings and results."""

    __slots__ = ()

    @abstractmethod
    def timeField(self, fieldName: str) -> Self:
        """Take the event time from a field."""

    @abstractmethod
    def fireMode(self, mode: FireMode) -> Self:
        """Set when results are emitted."""

    @abstractmethod
    def count_distinct(self, fieldName: str, asName: str | None = None) -> Self:
        """Count the distinct values exactly."""

    def setTimeField(self, fieldName: str) -> Self:
        """Take the event time from a field, as ``timeField``."""
        return self.timeField(fieldName)

    def setFireMode(self, mode: FireMode) -> Self:
        """Set when results are emitted, as ``fireMode``."""
        return self.fireMode(mode)

    def count_distinct_2(self, fieldName: str, asName: str | None = None) -> Self:
        """Count the distinct values exactly, as ``count_distinct``."""
        return self.count_distinct(fieldName, asName)

    set_time_field = setTimeField
    set_fire_mode = setFireMode


class DataStreamNames(ABC):
    """Second names of steps on records."""

    __slots__ = ()

    @abstractmethod
    def forEach(self, function: Callable[[Any], Any]) -> Self:
        """Call a function with each record and pass the record on."""

    def forEachMessage(self, function: Callable[[Any], Any]) -> Self:
        """Call a function with each record and pass the record on, as ``forEach``."""
        return self.forEach(function)

    for_each_message = forEachMessage


class SourceNames(ABC, Generic[S_co]):
    """Second names of sources."""

    __slots__ = ()

    @abstractmethod
    def fromCsv(self, filePath: str, *, schema: Any = None, tail: bool = False, **options: Any) -> S_co:
        """Read CSV with a header."""

    def fromCSVFile(self, filePath: str, *, schema: Any = None, tail: bool = False, **options: Any) -> S_co:
        """Read CSV with a header, as ``fromCsv``."""
        return self.fromCsv(filePath, schema=schema, tail=tail, **options)

    from_csv_file = fromCSVFile


class ConsumerProperty:
    """RocketMQ Streams' spelling of the property of where to start."""

    ROCKETMQ_STREAMS_CONSUMER_FORM_WHERE = "consume_from_where"


# --- without effect ---------------------------------------------------------------------------

_warned: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class NoEffect(Strategy):
    """A setting that changes nothing here. It warns once."""

    name: str

    def apply(self, job: Job) -> None:
        """Warn."""
        del job
        if self.name not in _warned:
            _warned.add(self.name)
            warnings.warn(f"{self.name} has no effect: Spark does this itself", UserWarning, stacklevel=4)


class ShuffleStrategy:
    """Names accepted for compatibility: Spark shuffles groups, not a topic."""

    @staticmethod
    def shuffleWithMQ() -> Strategy:
        """Return a strategy without effect."""
        return NoEffect("ShuffleStrategy.shuffleWithMQ")

    @staticmethod
    def shuffleInMemory() -> Strategy:
        """Return a strategy without effect."""
        return NoEffect("ShuffleStrategy.shuffleInMemory")
