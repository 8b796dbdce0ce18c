"""The sentence for those who have no PySpark, or an old one. Importing this module imports none."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from pyspark_rocketmq.errors import PySparkRequiredError

__all__ = ["explain_missing_pyspark", "explain_old_pyspark"]

MINIMUM_PYSPARK: Final = (4, 0)
"""The first release with Python data sources. What later ones add is listed in `spark.features`."""

MINIMUM_TEXT: Final = ".".join(map(str, MINIMUM_PYSPARK))


def explain_missing_pyspark(error: ModuleNotFoundError) -> PySparkRequiredError | None:
    """Return the sentence for an import that failed for want of a new PySpark, or None for another one."""
    match (error.name or "").split(".")[0]:
        case "pyspark" if find_spec("pyspark") is None:
            return PySparkRequiredError(
                f"this part of pyspark-rocketmq needs PySpark {MINIMUM_TEXT} or newer, which is missing: "
                "`pip install 'pyspark-rocketmq[spark]'` (or pyspark-client, for Spark Connect)"
            )
        case "pyspark" if (old := explain_old_pyspark()) is not None:
            return old
        case "pyspark" | "py4j":
            return PySparkRequiredError(
                f"this part of pyspark-rocketmq needs PySpark with its JVM, and {error.name} is not there: "
                "`pip install 'pyspark-rocketmq[spark]'`"
            )
        case _:
            return None


def explain_old_pyspark() -> PySparkRequiredError | None:
    """Return the sentence for a PySpark that is too old, or None for another one."""
    version = import_module("pyspark").__version__
    numbers = tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])
    if numbers >= MINIMUM_PYSPARK:
        return None
    return PySparkRequiredError(
        f"pyspark-rocketmq needs PySpark {MINIMUM_TEXT} or newer, but this is {version}: "
        f"install a newer one with `pip install -U 'pyspark>={MINIMUM_TEXT},<5'`"
    )
