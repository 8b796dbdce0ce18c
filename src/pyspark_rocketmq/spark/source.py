"""The data source with Spark's format name ``rocketmq``: from options to readers and writers.

Spark plans in short-lived processes that import this module each time: readers and writers are imported on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_rocketmq.options import SourceOptions, Where, parse_options
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.spark.read.schema import read_schema, spark_schema

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
    from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter, RocketMQStreamWriter

__all__ = ["RocketMQCompatDataSource", "RocketMQDataSource"]


@called_by_spark
class RocketMQDataSource(DataSource):
    """``format("rocketmq")``. Spark finds it without registration.

    Examples
    --------
    >>> df = (  # doctest: +SKIP
    ...     spark.read.format("rocketmq")
    ...     .option("nameServer", "127.0.0.1:9876")
    ...     .option("topic", "orders")
    ...     .load()
    ... )
    """

    _with_aliases: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the columns that the options select.

        Raises
        ------
        OptionError
            An option is invalid.
        """
        options = parse_options(SourceOptions, self.options)
        schema = read_schema(
            options.columns,
            include_properties=options.include_properties,
            body_as=options.body_as.value,
            with_aliases=self._with_aliases,
        )
        if not options.include_aligned_timestamp:
            return schema
        from pyspark_rocketmq.spark.read.aligned_column import AlignedColumn  # noqa: PLC0415

        return AlignedColumn.add_to(schema)

    def reader(self, schema: StructType) -> RocketMQBatchReader:
        """Return the batch reader. Spark raises an error if ``pushDownFilters`` lacks Spark's setting."""
        options, schema = self._source_options("read"), spark_schema(schema)
        if options.isolation.committed_only:
            from pyspark_rocketmq.spark.read.committed import CommittedBatchReader  # noqa: PLC0415

            return CommittedBatchReader(options, schema)
        if options.push_down_filters:
            from pyspark_rocketmq.spark.read.filtering_batch import FilteringBatchReader  # noqa: PLC0415

            return FilteringBatchReader(options, schema)
        from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader  # noqa: PLC0415
        from pyspark_rocketmq.spark.task_client import spare_collections  # noqa: PLC0415

        spare_collections()
        return RocketMQBatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader."""
        from pyspark_rocketmq.spark.read.position_keeper import reader_for  # noqa: PLC0415

        options = self._source_options("readStream")
        if options.isolation.committed_only:
            from pyspark_rocketmq.spark.read.committed import CommittedStreamReader  # noqa: PLC0415

            return reader_for(CommittedStreamReader(options, schema))
        from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader  # noqa: PLC0415

        return reader_for(RocketMQStreamReader(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> RocketMQBatchWriter:
        """Return the batch writer."""
        from pyspark_rocketmq.options import SinkOptions  # noqa: PLC0415
        from pyspark_rocketmq.spark.write.writer import RocketMQBatchWriter  # noqa: PLC0415

        options = parse_options(SinkOptions, self.options, where="write")
        return RocketMQBatchWriter(options, spark_schema(schema), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RocketMQStreamWriter:  # noqa: ARG002
        """Return the streaming writer. Spark does not call this in update mode, see `message_writer`."""
        from pyspark_rocketmq.options import SinkOptions  # noqa: PLC0415
        from pyspark_rocketmq.spark.write.writer import RocketMQStreamWriter  # noqa: PLC0415

        return RocketMQStreamWriter(parse_options(SinkOptions, self.options, where="writeStream"), schema)

    def _source_options(self, where: Where) -> SourceOptions:
        """Return the options of a read. Options that this Spark cannot have are refused, not ignored."""
        options = parse_options(SourceOptions, self.options, where=where)
        FEATURES.check_options(options, self.options)
        return options


class RocketMQCompatDataSource(RocketMQDataSource):
    """``format("org.apache.rocketmq.spark")``: the same source, also with rocketmq-spark's column names."""

    _with_aliases = True

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "org.apache.rocketmq.spark"
