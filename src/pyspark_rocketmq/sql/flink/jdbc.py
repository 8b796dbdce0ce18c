"""Flink's connector ``jdbc``: tables of databases, read by Spark and written in transactions."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.spark.stores.database_url import WRITABLE, database_url
from pyspark_rocketmq.sql.declared_columns import add_computed
from pyspark_rocketmq.sql.formats.changelogs import CHANGE, is_removal, latest_changes
from pyspark_rocketmq.sql.statements import CreateTable, PhysicalColumn, Position

if TYPE_CHECKING:
    from pyspark_rocketmq.spark.stores.database_table import DatabaseTable

__all__ = [
    "JDBC_OPTIONS",
    "check_database",
    "check_writable",
    "no_rows",
    "read_database",
    "reading_options",
    "row_writer",
]

_MARIADB: Final = "jdbc:mariadb:"
_REMOVED: Final = "__removed"

_READING: Final[Mapping[str, str]] = {
    "url": "url",
    "table-name": "dbtable",
    "username": "user",
    "password": "password",
    "driver": "driver",
    "scan.fetch-size": "fetchsize",
    "scan.partition.column": "partitionColumn",
    "scan.partition.num": "numPartitions",
    "scan.partition.lower-bound": "lowerBound",
    "scan.partition.upper-bound": "upperBound",
}
"""Flink's options, and those of Spark's reader."""

JDBC_OPTIONS: Final = frozenset(_READING)
_NESTED: Final = ("STRUCT", "MAP")
_DRIVERS: Final[Mapping[str, str]] = {
    "jdbc:postgresql:": "org.postgresql:postgresql",
    "jdbc:mysql:": "com.mysql:mysql-connector-j",
    "jdbc:mariadb:": "org.mariadb.jdbc:mariadb-java-client",
    "jdbc:sqlite:": "org.xerial:sqlite-jdbc",
}
_CLASSES: Final[Mapping[str, str]] = {
    "jdbc:postgresql:": "org.postgresql.Driver",
    "jdbc:mysql:": "com.mysql.cj.jdbc.Driver",
    "jdbc:sqlite:": "org.sqlite.JDBC",
}
_PASSWORD: Final = re.compile(r"(?i)password=([^&;]+)|//[^/@:]*:([^/@]+)@")
_UNKNOWN_DRIVER: Final = "No suitable driver"


def check_database(declared: CreateTable, options: Mapping[str, str]) -> None:
    """Check the declaration of a database's table.

    Raises
    ------
    SqlError
    """
    for name in ("url", "table-name"):
        if name not in options:
            declared.position.fail(f"connector 'jdbc' needs the option '{name}'")
    if not options["url"].startswith("jdbc:"):
        declared.position.fail("the option 'url' of connector 'jdbc' begins with jdbc:")
    for column in declared.columns:
        if isinstance(column, PhysicalColumn) and column.type.upper().startswith(_NESTED):
            column.name.position.fail(
                f"a database has no type for column {column.name.text!r}: declare a STRING, and write "
                "to_json(…)"
            )


def read_database(spark: SparkSession, declared: CreateTable, options: Mapping[str, str]) -> DataFrame:
    """Return the table's rows, with the declared columns.

    Raises
    ------
    SqlError
        The database has no such table or column.
    OptionError
        Spark cannot reach the database.
    """
    given = reading_options(options)
    try:
        rows = _load(spark, given)
    except (Py4JJavaError, PySparkException) as error:
        raise OptionError(_unreachable(options, error)) from None  # drivers repeat URLs, with passwords
    known = {name.lower(): name for name in rows.columns}
    selected = []
    for column in declared.columns:
        if isinstance(column, PhysicalColumn):
            if column.name.key not in known:
                column.name.position.fail(
                    f"table {options['table-name']} has no column {column.name.text!r}; it has "
                    f"{', '.join(rows.columns)}"
                )
            value = F.col(quote(known[column.name.key]))
            selected.append(value.cast(column.type).alias(column.name.text))
    return add_computed(declared, rows.select(*selected))


def _reads_times_of_session(spark: SparkSession) -> bool:
    """Whether Spark's reader takes a time without a zone for one of the session's zone.

    It takes it for one of Java's zone. Conditions on times that are converted do not reach the database.
    """
    if is_remote():
        return False
    session: Any = spark
    java_zone: str = session._jvm.java.util.TimeZone.getDefault().getID()  # noqa: SLF001
    return spark.conf.get("spark.sql.session.timeZone") == java_zone


def _load(spark: SparkSession, given: Mapping[str, str]) -> DataFrame:
    """Return the rows of Spark's reader. Java finds a driver in ``spark.jars`` only by its class's name."""
    reader = spark.read.format("jdbc").options(**given)
    if not _reads_times_of_session(spark):
        reader = reader.option("preferTimestampNTZ", "true")
    try:
        return reader.load()
    except (Py4JJavaError, PySparkException) as error:
        name = next((name for start, name in _CLASSES.items() if given["url"].startswith(start)), None)
        if name is None or "driver" in given or _UNKNOWN_DRIVER not in str(error):
            raise
    return reader.option("driver", name).load()


def reading_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's reader.

    Spark quotes names for MySQL as MariaDB needs it only in URLs of MySQL. With other quotes, MariaDB returns
    the names of columns in place of their values. MariaDB's driver takes such a URL if it is told to.
    """
    given = {_READING[name]: value for name, value in options.items()}
    url = given["url"]
    if url.startswith(_MARIADB):
        given["url"] = f"jdbc:mysql:{url.removeprefix(_MARIADB)}{'&' if '?' in url else '?'}permitMysqlScheme"
        given.setdefault("driver", "org.mariadb.jdbc.Driver")
    return given


def no_rows(spark: SparkSession, declared: CreateTable) -> DataFrame:
    """Return the table without rows, for a check that does not connect."""
    return add_computed(declared, spark.createDataFrame([], _schema(declared)))


def _schema(declared: CreateTable) -> StructType:
    columns = [column for column in declared.columns if isinstance(column, PhysicalColumn)]
    kinds = StructType.fromDDL(", ".join(f"{quote(c.name.text)} {c.type}" for c in columns))
    assert isinstance(kinds, StructType)
    return kinds


def _unreachable(options: Mapping[str, str], error: Exception) -> str:
    java = error.java_exception if isinstance(error, Py4JJavaError) else None
    reason = str(error if java is None else java.getMessage() or java.toString()).strip().partition("\n")[0]
    name = options["table-name"]
    if _UNKNOWN_DRIVER not in reason and "ClassNotFoundException" not in str(error):
        return f"table {name} of the database cannot be read: {_hide_passwords(reason, options)}"
    package = next((p for start, p in _DRIVERS.items() if options["url"].startswith(start)), "its package")
    return (
        f"Spark has no JDBC driver to read table {name}: add {package} to spark.jars.packages "
        f"(--conf spark.jars.packages={package}:VERSION)"
    )


def _hide_passwords(text: str, options: Mapping[str, str]) -> str:
    in_url = (found[1] or found[2] for found in _PASSWORD.finditer(options["url"]))
    given = [options.get("password", ""), *in_url]
    for password in filter(None, given):
        text = text.replace(password, "***")
    return text


def check_writable(options: Mapping[str, str], at: Position) -> None:
    """Check that this package writes to the database.

    Raises
    ------
    SqlError
    """
    if not options["url"].startswith(WRITABLE):
        kind = ":".join(options["url"].split(":")[:2])
        at.fail(
            f"{kind} can be read, but not written: PostgreSQL, MySQL, MariaDB and SQLite can. Write to a "
            "topic, or use foreachBatch in a program"
        )


def row_writer(options: Mapping[str, str], declared: CreateTable) -> Callable[[DataFrame], None]:
    """Return a function that writes a batch of the table's rows, after checking the table in the database.

    Raises
    ------
    OptionError
        The table does not take the rows.
    """
    names = {column.name.key: column.name.text for column in declared.columns}
    table = _database_table(options, tuple(names[name.key] for name in declared.primary_key))
    table.check(_schema(declared))

    def write(batch: DataFrame) -> None:
        if CHANGE not in batch.columns:
            table.write(batch)
            return
        latest = latest_changes(batch, table.key)
        table.write(latest.withColumn(_REMOVED, is_removal()).drop(CHANGE), removed=_REMOVED)

    return write


def _database_table(options: Mapping[str, str], key: tuple[str, ...]) -> DatabaseTable:
    if importlib.util.find_spec("sqlalchemy") is None:
        raise OptionError(
            'the connector jdbc writes by SQLAlchemy: pip install "pyspark-rocketmq[sql]", and the driver of '
            "the database, such as psycopg or pymysql"
        )
    from pyspark_rocketmq.spark.stores.database_table import DatabaseTable  # noqa: PLC0415 - an extra

    url = database_url(options["url"], options.get("username"), options.get("password"))
    schema, _, name = options["table-name"].rpartition(".")
    return DatabaseTable(url, name, schema or None, key)
