"""Names of packages that are imported on first use (PEP 562): most processes need few of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    modules : Mapping
        The names that each module defines. Modules that begin with a period are of the package.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def resolve(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(homes[name], package)
        except ModuleNotFoundError as error:
            # Every Python process of Spark imports this module, and hardly one needs the explanation.
            from pyspark_rocketmq._missing_pyspark import explain_missing_pyspark  # noqa: PLC0415

            raise explain_missing_pyspark(error) or error from None
        return getattr(module, name)

    def list_names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return resolve, list_names
