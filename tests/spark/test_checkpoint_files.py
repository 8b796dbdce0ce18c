"""A checkpoint through Hadoop's file systems: those of object stores and HDFS are reached the same way."""

from __future__ import annotations

import pytest
from tests.unit.tools.test_checkpoint import QUEUE, ours, write

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.tools import checkpoint as module
from pyspark_rocketmq.tools.checkpoint import read_finished_offsets, seek
from pyspark_rocketmq.tools.hadoop_checkpoint import HadoopCheckpointFiles


@pytest.fixture
def through_hadoop(spark, monkeypatch):
    monkeypatch.setattr(module, "checkpoint_files", lambda uri: HadoopCheckpointFiles(spark, str(uri)))


def test_a_query_is_moved_through_hadoop(through_hadoop, tmp_path):
    uri = tmp_path.as_uri()
    with pytest.raises(OptionError, match="no finished batch"):
        read_finished_offsets(uri)
    write(tmp_path, 4, ours(40))
    write(tmp_path, 5, '{"logOffset":5}', ours(50))
    assert read_finished_offsets(uri).offsets == {QUEUE: 50}
    seek(uri, {QUEUE: 7})
    found = read_finished_offsets(uri)
    assert (found.batch, found.offsets) == (5, {QUEUE: 7})
    assert (tmp_path / "offsets" / "5").read_text().splitlines()[2] == '{"logOffset":5}'
    assert not list((tmp_path / "offsets").glob(".5.new"))


@pytest.fixture
def mounted(spark, tmp_path):
    """``mounted(scheme)``: the URI of the test's folder in a file system of Hadoop's that is not ``file:``.

    ``viewfs`` replaces a file by a rename. ``store`` has no ``FileContext``, like some object stores.
    """
    conf, keys = spark._jsc.hadoopConfiguration(), []

    def mount(scheme: str) -> str:
        settings = {f"fs.viewfs.mounttable.jobs-{scheme}.link./all": tmp_path.as_uri()}
        if scheme != "viewfs":
            settings[f"fs.{scheme}.impl"] = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
        for key, value in settings.items():
            conf.set(key, value)
        keys.extend(settings)
        return f"{scheme}://jobs-{scheme}/all"

    yield mount
    for key in keys:
        conf.unset(key)


@pytest.mark.parametrize("scheme", ["viewfs", "store"])
def test_a_query_is_moved_on_another_file_system(mounted, spark, tmp_path, scheme: str):
    uri = mounted(scheme)
    write(tmp_path, 4, ours(40))
    assert read_finished_offsets(uri).offsets == {QUEUE: 40}
    seek(uri, {QUEUE: 7})
    assert read_finished_offsets(uri).offsets == {QUEUE: 7}
    assert [file.name for file in (tmp_path / "offsets").iterdir() if "crc" not in file.name] == ["4"]


def test_a_file_system_that_is_not_there_is_said(spark, monkeypatch):
    with pytest.raises(OptionError, match=r"cannot be read: .*No FileSystem for scheme"):
        read_finished_offsets("nowhere://host/checkpoint")
