"""The sentence for those who have no PySpark. This module imports none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from pyspark_rocketmq.errors import PySparkRequiredError

__all__ = ["MINIMUM_PYSPARK", "MINIMUM_TEXT", "explain_missing_pyspark"]

MINIMUM_PYSPARK: Final = (4, 0)
"""The first release with Python data sources. What later ones add is listed in `spark.features`."""

MINIMUM_TEXT: Final = ".".join(map(str, MINIMUM_PYSPARK))


def explain_missing_pyspark(error: ModuleNotFoundError) -> PySparkRequiredError | None:
    """Return the sentence for an import that failed for want of PySpark, or None for another one."""
    match (error.name or "").split(".")[0]:
        case "pyspark" if find_spec("pyspark") is None:
            return PySparkRequiredError(
                f"this part of pyspark-rocketmq needs PySpark {MINIMUM_TEXT} or newer, which is missing: "
                "`pip install 'pyspark-rocketmq[spark]'` (or pyspark-client, for Spark Connect)"
            )
        case "pyspark" | "py4j":
            return PySparkRequiredError(
                f"this part of pyspark-rocketmq needs PySpark with its JVM, and {error.name} is not there: "
                "`pip install 'pyspark-rocketmq[spark]'`"
            )
        case _:
            return None
