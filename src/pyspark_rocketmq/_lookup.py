"""What Spark's data source lookup gets: the source, or a stand-in that reports why it cannot be loaded.

Spark imports every ``pyspark_*`` module in one worker process and reads its ``DefaultSource``. An exception
here would disable every other Python data source of the session too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from pyspark_rocketmq._missing_pyspark import explain_missing_pyspark, explain_old_pyspark
from pyspark_rocketmq.errors import RocketMQError

__all__ = ["data_source", "require_pyspark"]


def data_source(class_name: str, format_name: str) -> type[Any]:
    """Return a data source class of ``spark.source``, or a stand-in that raises the import error when used.

    Parameters
    ----------
    class_name : str
        The class in ``pyspark_rocketmq.spark.source``.
    format_name : str
        The format name that Spark uses for it.
    """
    try:
        require_pyspark()
        source: type[Any] = getattr(import_module("pyspark_rocketmq.spark.source"), class_name)
    except Exception as error:  # noqa: BLE001 - a broken wheel may raise anything at import
        return _stand_in(format_name, error)
    return source


def require_pyspark() -> None:
    """Raise an error if PySpark is missing or too old, before an import or a missing name fails.

    Raises
    ------
    PySparkRequiredError
        The sentence for the user.
    """
    try:
        old = explain_old_pyspark()
    except ModuleNotFoundError as error:
        raise explain_missing_pyspark(error) or error from None
    if old is not None:
        raise old


def _stand_in(format_name: str, error: Exception) -> type[Any]:
    """Return a class that registers as ``format_name`` and raises ``error`` on use.

    Spark pickles it by value, so it closes over plain text only.
    """
    try:
        from pyspark.sql.datasource import DataSource  # noqa: PLC0415
    except ModuleNotFoundError:  # no PySpark, or one before 4.0: it is not Spark that asks
        raise error from None

    reason = (
        str(error)
        if isinstance(error, RocketMQError)
        else f"pyspark-rocketmq cannot be imported by {sys.executable}: {type(error).__name__}: {error}"
    )

    class UnusableDataSource(DataSource):
        """Stands in for a source whose import failed."""

        def __init__(self, options: Any) -> None:
            super().__init__(options)
            raise RocketMQError(reason, format=format_name) from None

        @classmethod
        def name(cls) -> str:
            return format_name

    return UnusableDataSource
