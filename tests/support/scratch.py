"""Where processes that are killed leave what they could not remove."""

from __future__ import annotations

from pathlib import Path


def scratch_env(folder: Path) -> dict[str, str]:
    """Return settings by which Python, Java and Spark keep temporary files below ``folder``.

    Java unpacks native libraries there and Spark its blocks and artefacts; whoever is killed removes none.
    """
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData",
    }
