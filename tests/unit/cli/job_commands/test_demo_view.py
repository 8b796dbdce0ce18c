from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from rich.console import Console
from tests.support.clocks import FakeClock

from pyspark_rocketmq.cli.job_commands.demo_view import LiveView, result_json, result_view, summary
from pyspark_rocketmq.demo.orders import WINDOW_MS, Total
from pyspark_rocketmq.demo.run import DemoRun, DemoSettings

START_MS = 1_767_225_600_000
SENT = {(START_MS, "Tent"): Total(2, 49_800), (START_MS + WINDOW_MS, "Backpack"): Total(1, 999_501)}


def text(renderable: object, width: int = 80) -> str:
    console = Console(width=width, record=True, file=None, highlight=False, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


@pytest.fixture
def run() -> DemoRun:
    clock = FakeClock()
    run = DemoRun(DemoSettings(messages=3, keep=True), clock=clock)
    run.name_server = "127.0.0.1:9876"
    for name, seconds in (("start Spark", 5), ("first rows", 3), ("stream the rest", 2)):
        with run.timeline.phase(name):
            clock.sleep(seconds)
    run.feed = SimpleNamespace(sent=3, expected=SENT, done=True)
    run.stream = SimpleNamespace(read=3, totals=SENT, batches=2, batch_s=0.5)
    return run


def test_the_live_view_shows_phases_progress_and_the_table_so_far(run):
    with run.timeline.phase("clean up"):
        shown = text(LiveView(run).render())
    assert "✔ start Spark" in shown
    assert "3 / 3" in shown
    assert "lag 0 · batch 2 took 0.50 s" in shown
    assert "€498.00" in shown


def test_before_anything_is_sent_there_are_only_phases():
    run = DemoRun(DemoSettings(), clock=FakeClock())
    with run.timeline.phase("start Spark"):
        shown = text(LiveView(run).render())
    assert "start Spark" in shown
    assert "sent" not in shown


def test_the_result_fits_80_columns_and_adds_up(run):
    shown = text(result_view(run))
    assert max(len(line) for line in shown.splitlines()) <= 80
    total = next(line for line in shown.splitlines() if line.strip().startswith("Total"))
    assert total.split() == ["Total", "498", "9,995", "·", "·", "3", "€10,493.01"]
    assert re.search(r"first rows +3\.0 s +━", shown)


def test_the_verdict_tells_how_to_go_on(run):
    verdict = summary(run).plain
    assert verdict.startswith("✔ 3 orders, €10,493.01: each of 2 sums equals what was sent, to the cent")
    assert f'option("topic", "{run.topic}")' in verdict
    assert "cluster stop" in verdict


def test_a_difference_is_told(run):
    run.stream = SimpleNamespace(totals={**SENT, (START_MS, "Tent"): Total(1, 24_900)})
    run.differences = ((START_MS, "Tent"),)
    verdict = summary(run).plain
    assert verdict.startswith(
        "✘ 1 of 2 sums differ from what was sent: 2 of 3 orders, €10,244.01 of €10,493.01"
    )


def test_the_result_as_json(run):
    told = result_json(run)
    assert (told["sent"], told["read"], told["cents"], told["differences"]) == (3, 3, 1_049_301, 0)
    assert told["seconds"] == {"start Spark": 5, "first rows": 3, "stream the rest": 2}
    assert told["revenue"][0] == {"windowStart": START_MS, "product": "Tent", "orders": 2, "cents": 49_800}
