"""SQL over RocketMQ: tables declared as in rocketmq-flink, job files, and the names of its code-level API.

Names resolve on first use, because Spark's processes that import the package need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark_rocketmq.sql.catalog import TableDescription, describe_table, list_tables
    from pyspark_rocketmq.sql.job import SqlJob, execute

__all__ = ["SqlJob", "TableDescription", "describe_table", "execute", "list_tables"]

_MODULES: Final = {
    "catalog": ("TableDescription", "describe_table", "list_tables"),
    "job": ("SqlJob", "execute"),
}
_HOMES: Final = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Resolve a name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
