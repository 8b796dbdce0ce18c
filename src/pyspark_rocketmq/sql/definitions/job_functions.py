"""Functions of a job, Python's and those in jars: ``CREATE FUNCTION name AS 'path' LANGUAGE …``.

# Facts (Spark 4.0 to 4.3): a class that implements ``org.apache.spark.sql.api.java.UDF0`` to ``UDF22`` is
registered without a type, which Spark takes from the interface's last parameter.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, get_type_hints

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.causes import find_cause
from pyspark_rocketmq.sql.statements import CreateFunction

__all__ = ["function_type", "load_function", "register_function"]

_TYPES: Final[dict[Any, str]] = {
    bool: "boolean",
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
    Decimal: "decimal(38,18)",
    float: "double",
    int: "bigint",
    str: "string",
}


def register_function(spark: SparkSession, statement: CreateFunction) -> None:
    """Make a function known to the session's SQL.

    Raises
    ------
    OptionError
        It cannot be loaded, or has no type.
    """
    if not statement.is_python:
        _register_class(spark, statement)
        return
    function = load_function(statement.path)
    if not hasattr(function, "returnType"):  # of pyspark's udf
        function = F.udf(function, function_type(function, statement.path), useArrow=True)
    spark.udf.register(statement.name.text, function)


def _register_class(spark: SparkSession, statement: CreateFunction) -> None:
    try:
        for jar in statement.jars:
            spark.sql(f"ADD JAR '{jar}'")
        spark.udf.registerJavaFunction(statement.name.text, statement.path)
    except (PySparkException, Py4JError) as error:
        cause = find_cause(str(error)) or type(error).__name__
        raise OptionError(
            f"Spark cannot load {statement.path} ({cause}): it loads "
            "classes that implement org.apache.spark.sql.api.java.UDF0 to UDF22. Write a Python twin of a "
            "function of Flink's: LANGUAGE PYTHON"
        ) from error


def load_function(path: str) -> Callable[..., Any]:
    """Import a function by its module and name.

    Raises
    ------
    OptionError
        It cannot be imported.
    """
    module, _, name = path.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"no Python function {path}: {error}. Its module must be on PYTHONPATH") from error
    return found


def function_type(function: Callable[..., Any], path: str) -> str:
    """Return Spark's type of what a function returns, by its annotation.

    Raises
    ------
    OptionError
        It has none, or one without a type in Spark.
    """
    returned = get_type_hints(function).get("return")
    if returned not in _TYPES:
        names = ", ".join(kind.__name__ for kind in _TYPES)
        raise OptionError(
            f"the type of {path} is not known: annotate what it returns, as one of {names}, or use "
            "pyspark's udf"
        )
    return _TYPES[returned]
