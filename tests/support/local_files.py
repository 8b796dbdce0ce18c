"""``python -m tests.support.local_files`` compiles a file system for Spark that starts no processes.

See `java/InProcessFiles.java`. `make setup` runs it, and `lean_jvm` gives Spark the result.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Final

import pyspark
from tests.support.lean_jvm import LOCAL_FILES

from pyspark_rocketmq.devcluster.java import find_java

_SOURCE: Final = Path(__file__).with_name("java") / "InProcessFiles.java"


def compile_local_files() -> None:
    """Compile it with Hadoop's classes of the installed Spark, into one archive."""
    hadoop = [*Path(pyspark.__file__).parent.glob("jars/hadoop-client-*.jar")]
    draft = LOCAL_FILES.with_suffix(".draft")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(draft, "w") as archive:
        for file in find_java().compile([_SOURCE], jars=hadoop, output=Path(folder)).iterdir():
            archive.write(file, file.name)
    draft.rename(LOCAL_FILES)


if __name__ == "__main__":
    compile_local_files()
