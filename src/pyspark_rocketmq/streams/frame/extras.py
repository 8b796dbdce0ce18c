"""Requirements of steps beyond PySpark."""

from __future__ import annotations

import importlib.util

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.features import FEATURES

__all__ = ["require", "require_state"]


def require_state(step: str) -> None:
    """Raise an error if Spark, or the library for the state of its Python workers, is too old or missing.

    Raises
    ------
    OptionError
        Spark is too old.
    PlanError
        The library is missing.
    """
    FEATURES.require("4.1", f"{step} keeps state in Python workers, which", "use that release")
    if not _is_installed("google.protobuf"):
        raise PlanError(
            "this step keeps state in Python workers, for which Spark needs protobuf: "
            'pip install "pyspark-rocketmq[state]"',
            step=step,
        )


def require(module: str, extra: str, step: str) -> None:
    """Raise a PlanError if a module of an extra is missing."""
    if not _is_installed(module):
        raise PlanError(f'this step needs a library: pip install "pyspark-rocketmq[{extra}]"', step=step)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
