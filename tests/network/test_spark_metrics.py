"""Queries by the metrics of Spark's UI; a server with such an answer. The real one is in tests/spark."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.dashboard.spark_metrics import SparkMetrics
from pyspark_rocketmq.errors import OptionError


def gauges(query: str, *, rate: float, latency: int) -> dict[str, object]:
    figures = {
        "inputRate-total": rate,
        "processingRate-total": 2 * rate,
        "latency": latency,
        "eventTime-watermark": 1_700_000_000_000,
        "states-rowsTotal": 6,
        "states-usedBytes": 1_808,
    }
    return {
        f"app-1.driver.spark.streaming.{query}.{name}": {"value": value} for name, value in figures.items()
    }


class Ui:
    """Answers with what ``body`` is."""

    def __init__(self) -> None:
        self.body = b"{}"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if self.path == "/metrics/json/" else 404)
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def tell(self, *queries: dict[str, object]) -> None:
        told: dict[str, object] = {"app-1.driver.jvm.heap.used": {"value": 5}}
        for query in queries:
            told |= query
        self.body = json.dumps({"version": "4.0.0", "gauges": told, "counters": {}}).encode()


@pytest.fixture
def ui() -> Iterator[Ui]:
    ui = Ui()
    thread = threading.Thread(target=ui.server.serve_forever)
    thread.start()
    yield ui
    ui.server.shutdown()
    thread.join(30)
    ui.server.server_close()


def test_each_look_that_finds_other_figures_is_a_point(ui):
    clock = FakeClock()
    metrics = SparkMetrics(ui.url + "/", clock=clock)
    ui.tell()
    assert metrics.look() == ()
    ui.tell(gauges("sums.by.hour", rate=10.0, latency=400), gauges("b", rate=1.0, latency=5))
    metrics.look()
    clock.now_s += 1
    b, sums = metrics.look()
    assert (sums.name, len(sums.batches), b.name, len(b.batches)) == ("sums.by.hour", 1, "b", 1)
    clock.now_s += 1
    ui.tell(gauges("sums.by.hour", rate=20.0, latency=300))
    sums, b = metrics.look()
    assert (sums.ended, b.ended) == (False, True)
    first, last = sums.batches
    assert last.at_ms - first.at_ms == 2_000
    assert (last.input_rate, last.processed_rate, last.duration_ms) == (20.0, 40.0, {"batch": 300})
    assert (last.state_rows, last.state_bytes, last.watermark_ms) == (6, 1_808, 1_700_000_000_000)
    assert (last.batch_id, last.rows, last.lag) == (None, None, {})


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"gauges": 5}', b"{}", b"\xff"])
def test_what_is_no_answer_of_sparks_is_told(ui, body):
    ui.body = body
    with pytest.raises(OptionError, match="does not answer with its metrics"):
        SparkMetrics(ui.url).look()


def test_a_driver_that_is_gone_is_told(ui):
    with pytest.raises(OptionError, match=r"does not answer.*127\.0\.0\.1:1"):
        SparkMetrics("http://127.0.0.1:1").look()
    with pytest.raises(OptionError, match=r"does not answer.*elsewhere"):
        SparkMetrics(ui.url + "/elsewhere").look()


def test_a_server_of_another_protocol_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_024)
                connection.sendall(b"\x00\x00\x00\x02{}\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OptionError, match="does not answer with its metrics"):
            SparkMetrics(f"http://127.0.0.1:{server.getsockname()[1]}").look()
        thread.join(30)


@pytest.mark.parametrize(
    "url",
    [
        *("driver:4040", "file:///etc/passwd", "http://", ""),
        *("http://driver:port", "http://driver:99999", "http://[::1"),
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(OptionError, match="an address such as"):
        SparkMetrics(url)


def test_queries_that_ended_long_ago_are_forgotten(ui):
    """A query without a name has another id whenever it starts without its checkpoint."""
    clock = FakeClock()
    metrics = SparkMetrics(ui.url, clock=clock)
    for number in range(60):
        ui.tell(gauges("stays", rate=5.0, latency=9), gauges(f"id-{number}", rate=1.0, latency=number))
        metrics.look()
        clock.now_s += 5
    found = metrics.look()
    assert [run.name for run in found if not run.ended] == ["id-59", "stays"]
    assert {run.name for run in found if run.ended} == {f"id-{number}" for number in range(9, 59)}
