"""The documentation's site: built without a warning, and whole without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.wheel import ROOT


@pytest.fixture(scope="module")
def site() -> Path:
    folder = ROOT / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    loads = (
        r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//"
        r"|<link[^>]*rel=[\"']?(?:stylesheet|preconnect|icon)[\"']?[^>]*href=[\"']?(?:https?:)?//"
    )
    for page in pages:
        assert not re.findall(loads, page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.findall(r"@import|url\([\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_pieces_of_examples_docstrings_and_pictures_are_in_it(site: Path) -> None:
    quickstart = re.sub(r"<[^>]+>", "", (site / "quickstart.html").read_text(encoding="utf-8"))
    assert "query.processAllAvailable()" in quickstart
    api = (site / "api.html").read_text(encoding="utf-8")
    assert "pyspark_rocketmq.spark.monitor.listener.RocketMQQueryListener" in api
    assert "Monitors every RocketMQ source" in api
    trouble = (site / "troubleshooting.html").read_text(encoding="utf-8")
    assert "No name server has a route of the topic." in trouble
    assert ":::" not in trouble + api
    assert "listens on port 9876" in (site / "changelog.html").read_text(encoding="utf-8")
    assert (site / "pictures" / "queues.svg").stat().st_size > 1_000
