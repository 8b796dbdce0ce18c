"""Where Java artifacts come from: repositories, configured as in Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["IVY_SETTINGS_VARIABLE", "MIRROR_VARIABLE", "REPOSITORIES_VARIABLE", "Repositories", "spark_home"]

IVY_SETTINGS_VARIABLE: Final = "PYSPARK_ROCKETMQ_IVY_SETTINGS"
REPOSITORIES_VARIABLE: Final = "PYSPARK_ROCKETMQ_REPOSITORIES"
MIRROR_VARIABLE: Final = "DEFAULT_ARTIFACT_REPOSITORY"


@dataclass(frozen=True, slots=True)
class Repositories:
    """The repositories of artifacts, configured as in Spark.

    The default is Spark's: Maven Central, or the mirror in the environment variable
    ``DEFAULT_ARTIFACT_REPOSITORY``.

    Parameters
    ----------
    ivy_settings : str, optional
        Path to an Ivy settings file (``spark.jars.ivySettings``).
    repositories : str, optional
        Additional repositories, separated by commas (``spark.jars.repositories``).
    mirror : str, optional
        Used instead of Maven Central.
    """

    ivy_settings: str | None = None
    repositories: str | None = None
    mirror: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Repositories:
        """Read this package's environment variables. Those not set are read from spark-defaults.conf."""
        conf = _spark_defaults(environ)
        return cls(
            ivy_settings=environ.get(IVY_SETTINGS_VARIABLE) or conf.get("spark.jars.ivySettings"),
            repositories=environ.get(REPOSITORIES_VARIABLE) or conf.get("spark.jars.repositories"),
            mirror=environ.get(MIRROR_VARIABLE) or None,
        )

    @property
    def additional(self) -> tuple[str, ...]:
        """The additional repositories."""
        return tuple(url.strip() for url in (self.repositories or "").split(",") if url.strip())


def spark_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of a Spark with its JVM's jars, or None: pyspark-client has none.

    ``SPARK_HOME``, else the installed PySpark's.
    """
    if find_spec("pyspark") is None or find_spec("py4j") is None:
        return None
    spec = find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin else None
    named = environ.get("SPARK_HOME")
    for home in (Path(named) if named else None, installed):
        if home is not None and any((home / "jars").glob("spark-core_*.jar")):
            return home
    return None


def _spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    home = spark_home(environ)
    folder = Path(environ["SPARK_CONF_DIR"]) if environ.get("SPARK_CONF_DIR") else home and home / "conf"
    if folder is None or not (folder / "spark-defaults.conf").exists():
        return {}
    text = (folder / "spark-defaults.conf").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
