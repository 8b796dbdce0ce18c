"""Spark's look-up of data sources takes ours, and is never broken by it."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pyspark
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import DataSource

import pyspark_rocketmq
import pyspark_rocketmq.spark
import pyspark_rocketmq_compat
from pyspark_rocketmq import _lookup
from pyspark_rocketmq.errors import RocketMQError

MODULES = {pyspark_rocketmq: "rocketmq", pyspark_rocketmq_compat: "org.apache.rocketmq.spark"}


@pytest.mark.parametrize("module", MODULES)
def test_both_modules_hand_out_their_format(module):
    assert hasattr(module, "DefaultSource")
    assert issubclass(module.DefaultSource, DataSource)
    assert module.DefaultSource.name() == MODULES[module]


@pytest.mark.parametrize("module", MODULES)
def test_other_names_are_no_attributes(module):
    assert not hasattr(module, "Nonsense")


def test_every_public_name_resolves():
    for name in pyspark_rocketmq.__all__:
        assert getattr(pyspark_rocketmq, name) is not None
    assert dir(pyspark_rocketmq) == sorted(pyspark_rocketmq.__all__)


def test_every_helper_resolves_twice_and_is_no_module():
    for name in pyspark_rocketmq.spark.__all__ * 2:
        assert not inspect.ismodule(getattr(pyspark_rocketmq.spark, name)), name


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, pyspark_rocketmq, pyspark_rocketmq_compat\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def check_stand_in(source: type, name: str, text: str) -> None:
    assert issubclass(source, DataSource)
    assert source.name() == name
    pickler = CloudPickleSerializer()
    copy = pickler.loads(pickler.dumps(source))
    for each in (source, copy):
        with pytest.raises(RocketMQError, match=text):
            each({})


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "error", [ImportError("libarrow.so: cannot open"), AttributeError("np.bool"), RuntimeError("ABI")]
)
def test_a_broken_import_leaves_a_stand_in_whose_use_tells_why(module, error, monkeypatch):
    def broken(name: str) -> object:
        raise error

    monkeypatch.setattr(_lookup, "import_module", broken)
    assert hasattr(module, "DefaultSource")
    check_stand_in(module.DefaultSource, MODULES[module], f"cannot be imported by .*{error}")


@pytest.mark.parametrize("version", ["3.5.9", "3.4.0.dev1"])
def test_an_old_pyspark_is_told_so(version, monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", version)
    check_stand_in(
        pyspark_rocketmq.DefaultSource, "rocketmq", rf"needs PySpark 4\.0 or newer, but this is {version}"
    )


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "4.10.0", "5.0.0rc1"])
def test_a_newer_pyspark_is_taken(version, monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", version)
    source = importlib.import_module("pyspark_rocketmq.spark.source")
    assert pyspark_rocketmq.DefaultSource is source.RocketMQDataSource
