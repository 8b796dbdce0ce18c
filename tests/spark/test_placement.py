"""That location strategies really decide which executor reads a queue, on executors of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.lean_jvm import COMPILED
from tests.support.wait import BUSY

from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.testing import MockCluster

ROOT = Path(__file__).parents[2]
QUEUES = 6


@pytest.mark.needs("programs")
@pytest.mark.timeout(240)
def test_each_queue_is_read_where_its_strategy_says() -> None:
    with MockCluster({"orders": QUEUES}) as mq:
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"x"), queue)
        python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
        path = os.pathsep.join(map(str, (COMPILED, ROOT, ROOT / "src")))
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("placement_job.py")), mq.name_server, "orders"],
            env={**os.environ, **python, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=200 * BUSY,
            check=False,
        )
    answers = [line[1:] for line in done.stdout.splitlines() if line.startswith("@")]
    assert answers, done.stderr[-6_000:]
    seen = json.loads(answers[0])
    first, second = seen["consistent"]
    assert first == second, "a queue changed its executor"
    assert sorted(Counter(first.values()).values()) == [QUEUES // 2] * 2, "the shares are not even"
    process_of = {}
    for queue_id, executor in seen["wanted"].items():
        assert process_of.setdefault(executor, first[queue_id]) == first[queue_id], seen
    assert len(set(process_of.values())) == len(set(seen["wanted"].values())) == 2, "one executor reads all"
    even, odd = ({seen["fixed"][str(n)] for n in range(start, QUEUES, 2)} for start in (0, 1))
    assert len(even) == len(odd) == 1
    assert even != odd
