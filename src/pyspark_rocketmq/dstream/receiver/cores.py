"""Each receiver occupies a core while it runs: checks that a core is left for batches."""

from __future__ import annotations

import os
import re
import weakref
from typing import Final

from pyspark import SparkContext
from pyspark.streaming import StreamingContext

from pyspark_rocketmq.errors import OptionError

__all__ = ["check_cores", "hold_cores", "local_cores"]

_LOCAL: Final = re.compile(r"local(?:\[\s*(?P<cores>\*|[0-9]+)\s*(?:,.*)?\])?")
_CLUSTER: Final = re.compile(r"local-cluster\[\s*(?P<workers>[0-9]+)\s*,\s*(?P<cores>[0-9]+)\s*,.*\]")

_HELD: Final[weakref.WeakKeyDictionary[StreamingContext, int]] = weakref.WeakKeyDictionary()
"""Number of requested receivers, by context."""


def local_cores(master: str | None) -> int | None:
    """Return how many tasks a master runs concurrently, if its URL says so.

    Examples
    --------
    >>> local_cores("local[3]"), local_cores("local"), local_cores("local-cluster[2,2,1024]")
    (3, 1, 4)
    >>> local_cores("spark://10.0.0.1:7077") is None
    True
    """
    if master is None:
        return None
    if found := _LOCAL.fullmatch(master):
        cores = found["cores"]
        return (os.cpu_count() or 1) if cores == "*" else int(cores or 1)
    if found := _CLUSTER.fullmatch(master):
        return int(found["workers"]) * int(found["cores"])
    return None


def hold_cores(ssc: StreamingContext, receivers: int) -> None:
    """Register receivers of a context.

    Raises
    ------
    OptionError
        No core would be left for batches.
    """
    held = _HELD.get(ssc, 0)
    check_cores(ssc.sparkContext, receivers, asked=held)
    _HELD[ssc] = held + receivers


def check_cores(sc: SparkContext, receivers: int, *, asked: int) -> None:
    """Raise if receivers, with those registered before, leave no core for batches, as far as is known.

    Raises
    ------
    OptionError
        No core would be left for batches.
    """
    cores = local_cores(sc.master)
    if cores is None:
        conf = sc.getConf()
        most = conf.get("spark.cores.max")
        instances = conf.get("spark.executor.instances")
        if most:
            cores = int(most)
        elif instances and (conf.get("spark.dynamicAllocation.enabled", "false") or "false") != "true":
            cores = int(instances) * int(conf.get("spark.executor.cores", "1") or 1)
    if cores is not None and receivers + asked >= cores:
        raise OptionError(
            f"{receivers + asked} receivers would hold all {cores} cores of {sc.master} and leave none to "
            f"batches: give at least {receivers + asked + 1}, such as local[{receivers + asked + 1}]",
            receivers=receivers + asked,
            cores=cores,
        )
