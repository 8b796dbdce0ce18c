"""Passes the RDD created for a batch to output operations: PySpark creates a new wrapper for each."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from pyspark import RDD

__all__ = ["keep_live", "pass_batches"]

_LIVE: Final[weakref.WeakValueDictionary[int, RDD[Any]]] = weakref.WeakValueDictionary()
"""The RDDs of running streams by Spark's id."""


def keep_live(rdd: RDD[Any]) -> None:
    """Have functions of `pass_batches` receive this object, as long as it is referenced."""
    _LIVE[rdd.id()] = rdd


def pass_batches(func: Callable[..., Any]) -> Callable[[datetime, RDD[Any]], Any]:
    """Pass a function the RDD that was created for the batch instead of PySpark's new wrapper."""
    if func.__code__.co_argcount == 1:
        return lambda _, rdd: func(_find_made(rdd))
    return lambda time, rdd: func(time, _find_made(rdd))


def _find_made(rdd: RDD[Any]) -> RDD[Any]:
    made = _LIVE.get(rdd.id(), rdd)
    level = rdd.getStorageLevel()
    # PySpark runs a chain of Python steps as one, from its beginning, unless the RDD before them is cached.
    # For a persisted stream, Spark has marked only the JVM's RDD as cached.
    made.is_cached = made.is_cached or level.useMemory or level.useDisk
    return made
