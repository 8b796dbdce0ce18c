"""A topic that an INSERT cannot write is found before a query starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import BodyFormat, OutputMode
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.plan.targets import DeadLettersTarget, MessagesTarget
from pyspark_rocketmq.sql.tables import Table
from pyspark_rocketmq.testing import MockBroker


@pytest.fixture
def broker() -> Iterator[MockBroker]:
    with MockBroker({"orders": 1}) as broker:
        yield broker


class StartedError(Exception):
    """The writer is used: the query would start."""


class Writer:
    def __getattr__(self, name: str) -> object:
        raise StartedError


def declare(broker: MockBroker, topic: str, more: str = "") -> Table:
    (declared,) = parse_statements(
        f"CREATE TABLE o (a INT) WITH ('connector' = 'rocketmq', 'topic' = '{topic}', "
        f"'nameServer' = '{broker.name_server}'{more})"
    )
    return Table.of(declared, default_format=BodyFormat.JSON)


def test_a_missing_topic_is_an_error_that_says_how_to_create_it(broker: MockBroker) -> None:
    target = MessagesTarget(declare(broker, "ordrs"))
    expected = (
        "topic ordrs does not exist: create it, or set 'createTopic' = 'true' in the WITH clause of table o"
    )
    with pytest.raises(OptionError, match=expected):
        target.start(Writer(), OutputMode.APPEND, "/c")
    with pytest.raises(OptionError, match=expected):
        target.write(Writer())


def test_a_topic_that_exists_or_may_be_created_is_written(broker: MockBroker) -> None:
    for table in (declare(broker, "orders"), declare(broker, "created", ", 'createTopic' = 'true'")):
        with pytest.raises(StartedError):
            MessagesTarget(table).start(Writer(), OutputMode.APPEND, "/c")
    assert broker.queue("created")


def test_a_missing_topic_of_bad_records_is_found_too(broker: MockBroker) -> None:
    table = declare(broker, "orders", ", 'badRecords' = 'dead-letter', 'badRecordsTopic' = 'bad'")
    with pytest.raises(OptionError, match=r"topic bad does not exist: create it"):
        DeadLettersTarget(table).start(Writer(), OutputMode.APPEND, "/c")
