"""Which sources end."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    SimpleDataSourceStreamReader,
)

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import StreamBuilder
from pyspark_rocketmq.streams.connectors.dataframes import FrameSource


class Once(DataSource):
    def reader(self, schema) -> DataSourceReader:
        raise NotImplementedError


class Ever(Once):
    def streamReader(self, schema) -> DataSourceStreamReader:
        raise NotImplementedError


class Simple(Once):
    def simpleStreamReader(self, schema) -> SimpleDataSourceStreamReader:
        raise NotImplementedError


@pytest.mark.parametrize(("source", "ends"), [(Once, True), (Ever, False), (Simple, False)])
def test_a_data_source_ends_when_it_cannot_be_streamed(source, ends):
    assert FrameSource(name="from_", frame=source({})).bounded is ends


def test_anything_else_is_not_a_source():
    with pytest.raises(PlanError, match="from_ takes a DataFrame"):
        StreamBuilder.dataStream("ns", "p").from_("people")
