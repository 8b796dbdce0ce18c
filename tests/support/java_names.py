"""A name of Java is looked up once in a process.

py4j asks the JVM for each part of a name whenever it is used, and the JVM looks for it in ten packages and
some three hundred archives: a twentieth of what Spark's JVMs did in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView

__all__ = ["remember_java_names"]


def remember_java_names() -> None:
    """Keep classes and packages in what they were asked of, for the rest of the process."""
    for of_names in (JVMView, JavaPackage):
        of_names.__getattr__ = _remembering(of_names.__getattr__)


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def __getattr__(self: Any, name: str) -> Any:  # noqa: N807 - it replaces one
        found = look_up(self, name)
        if isinstance(found, JavaClass | JavaPackage):
            vars(self)[name] = found
        return found

    return __getattr__
