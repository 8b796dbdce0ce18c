"""The files of a query's checkpoint on a Hadoop file system, through Spark's JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

__all__ = ["HadoopCheckpointFiles", "hadoop_checkpoint_files"]


def hadoop_checkpoint_files(uri: str) -> HadoopCheckpointFiles:
    """Return the files of a URI, through the active session or a new one."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        builder = SparkSession.builder.master("local[1]").appName("checkpoint")
        spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    return HadoopCheckpointFiles(spark, uri)


class HadoopCheckpointFiles:
    """A folder of a Hadoop file system, such as HDFS or an object store.

    Parameters
    ----------
    spark : SparkSession
        A classic session, not Spark Connect.
    uri : str
    """

    def __init__(self, spark: SparkSession, uri: str) -> None:
        jvm = spark.sparkContext._jvm  # noqa: SLF001 - PySpark's own way to Hadoop
        assert jvm is not None
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._uri = uri.rstrip("/")
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._new_array = spark.sparkContext._gateway.new_array  # type: ignore[union-attr]  # noqa: SLF001

    def __str__(self) -> str:
        return self._uri

    def batches(self, log: str) -> list[int]:
        """See `CheckpointFiles`."""
        with _as_os_errors():
            path, files = self._open(log)
            if not files.exists(path):
                return []
            names = [str(status.getPath().getName()) for status in files.listStatus(path)]
        return [int(name) for name in names if name.isdigit()]

    def read(self, name: str) -> str:
        """See `CheckpointFiles`."""
        with _as_os_errors():
            path, files = self._open(name)
            stream = files.open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def replace(self, name: str, text: str) -> None:
        """See `CheckpointFiles`: by a rename, or if the file system has none, by writing the whole file."""
        folder, _, last = name.rpartition("/")
        with _as_os_errors():
            path, files = self._open(name)
            try:
                context = self._hadoop.FileContext.getFileContext(files.getUri(), self._configuration)
            except Py4JJavaError as error:
                if "UnsupportedFileSystem" not in str(error.java_exception.getClass().getName()):
                    raise
                self._write(files, path, text)
                return
            new, _ = self._open(f"{folder}/.{last}.new")
            self._write(files, new, text)
            rename = getattr(self._hadoop, "Options$Rename")
            options = self._new_array(rename, 1)
            options[0] = rename.OVERWRITE
            context.rename(new, path, options)

    def _write(self, files: Any, path: Any, text: str) -> None:
        stream = files.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _open(self, name: str) -> tuple[Any, Any]:
        path = self._hadoop.Path(f"{self._uri}/{name}")
        return path, path.getFileSystem(self._configuration)


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise OSError(0, str(error.java_exception.toString())) from error
