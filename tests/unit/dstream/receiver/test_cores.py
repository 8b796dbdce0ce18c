from __future__ import annotations

import os

import pytest

from pyspark_rocketmq.dstream.receiver.cores import check_cores, local_cores
from pyspark_rocketmq.errors import OptionError


class Context:
    """What is asked of a SparkContext."""

    def __init__(self, master: str, conf: dict[str, str]) -> None:
        self.master = master
        self._conf = conf

    def getConf(self) -> dict[str, str]:
        return self._conf


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[2,8]", 2),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,3,1024]", 6),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_what_a_master_s_name_says(master, cores):
    assert local_cores(master) == cores


@pytest.mark.parametrize(
    ("master", "conf", "enough"),
    [
        ("local[2]", {}, 1),
        ("spark://h:7077", {"spark.cores.max": "5"}, 4),
        ("yarn", {"spark.executor.instances": "2", "spark.executor.cores": "2"}, 3),
    ],
)
def test_receivers_must_leave_a_core(master, conf, enough):
    check_cores(Context(master, conf), enough, asked=0)
    with pytest.raises(OptionError, match=f"{enough + 1} receivers would hold all {enough + 1} cores"):
        check_cores(Context(master, conf), enough, asked=1)


def test_who_grows_cannot_be_counted():
    conf = {"spark.executor.instances": "1", "spark.dynamicAllocation.enabled": "true"}
    check_cores(Context("yarn", conf), 10, asked=0)
    check_cores(Context("spark://h:7077", {}), 10, asked=0)
