"""RDDs of messages that can also be read as Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.read.schema import Projection, read_schema, to_projection

__all__ = ["HasRecordBatches"]

R_co = TypeVar("R_co", covariant=True)


class HasRecordBatches(ABC, Generic[R_co]):
    """An RDD whose messages can be read as ``pyarrow.RecordBatch``."""

    def recordBatches(self, columns: Sequence[str] | None = None, bodyAs: str = "binary") -> R_co:
        """Return the same messages as an RDD of ``pyarrow.RecordBatch``, many times faster than objects.

        Parameters
        ----------
        columns : sequence of str, optional
            As the data source's option ``columns``. Default: its default columns; ``["*"]`` for all.
        bodyAs : {"binary", "string"}

        Raises
        ------
        OptionError
            An unknown column, or a body type other than binary and string.
        """
        if bodyAs not in ("binary", "string"):
            raise OptionError("bodyAs is binary or string", bodyAs=bodyAs)
        schema = read_schema(columns, body_as="string" if bodyAs == "string" else "binary")
        return self._read_batches(to_projection(schema))

    @abstractmethod
    def _read_batches(self, projection: Projection) -> R_co:
        """Return the RDD of the same messages as record batches with these columns."""
