"""The example of how to test, in this suite's Spark session; docs/testing.md, in a fresh environment."""

from __future__ import annotations

import re

import pytest
from examples.testing_example import *  # noqa: F403 - its tests and fixtures are collected here
from packaging.requirements import Requirement
from tests.support.scratch import scratch_env
from tests.support.wheel import ROOT, Installation, build

from pyspark_rocketmq.testing.plugin import mock_rocketmq, mock_rocketmq_peek

__all__ = ["mock_rocketmq", "mock_rocketmq_peek"]


@pytest.mark.needs("programs")
def test_the_files_of_the_page_run_where_nothing_is_configured(tmp_path):
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    assert files.keys() == {"conftest.py", "test_revenue.py"}
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    (wheel,) = build(ROOT, tmp_path / "dist", "wheel")
    installed = Installation(tmp_path / "venv", wheel, "spark")
    installed.lend(Requirement("pytest"))
    command = ("-m", "pytest", "-q", "-W", "error", "test_revenue.py")
    done = installed.run("python", *command, cwd=tmp_path, timeout_s=200, **scratch_env(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
