"""Giving output operations the RDD that was made for a batch: PySpark wraps it anew for each of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from pyspark import RDD

__all__ = ["keep_live", "of_batches"]

_LIVE: Final[weakref.WeakValueDictionary[int, RDD[Any]]] = weakref.WeakValueDictionary()
"""The RDDs of running streams by Spark's id."""


def keep_live(rdd: RDD[Any]) -> None:
    """Have functions of `of_batches` get this very object, for as long as somebody keeps it."""
    _LIVE[rdd.id()] = rdd


def of_batches(func: Callable[..., Any]) -> Callable[[datetime, RDD[Any]], Any]:
    """Give a function the RDD that was made for the batch instead of PySpark's new wrapper around it."""
    if func.__code__.co_argcount == 1:
        return lambda _, rdd: func(_made(rdd))
    return lambda time, rdd: func(time, _made(rdd))


def _made(rdd: RDD[Any]) -> RDD[Any]:
    made = _LIVE.get(rdd.id(), rdd)
    level = rdd.getStorageLevel()
    # PySpark runs a chain of Python steps as one, from its beginning, unless the RDD before them is cached:
    # of a stream that is persisted Spark has told the JVM's RDD only.
    made.is_cached = made.is_cached or level.useMemory or level.useDisk
    return made
