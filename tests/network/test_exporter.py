"""The exporter: what Prometheus gets of groups, dead letters and topics; its dashboard and alert rules."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry
from tests.support.cli import CommandLine
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import Client, ClientOptions, OutgoingMessage
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.model import metrics
from pyspark_rocketmq.model.metrics import Metric
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockCluster, Refuse
from pyspark_rocketmq.tools.exporter.collector import ClusterCollector
from pyspark_rocketmq.tools.exporter.measurement import ClusterMeter
from pyspark_rocketmq.tools.exporter.server import MetricsServer

RULES = Path(__file__).parents[1] / "golden" / "alerts_test.yml"
SHIPPED = files("pyspark_rocketmq.tools.exporter")
KNOWN = {value.name for value in vars(metrics).values() if isinstance(value, Metric)}


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    """Two brokers: ``billing`` has read the first of two messages per queue, ``shipping`` everything."""
    topics = {"orders": 1, "payments": 1, "%DLQ%billing": 1}
    with MockCluster(topics, brokers=("broker-a", "broker-b")) as cluster:
        for queue in (*cluster.queues("orders"), *cluster.queues("orders")):
            cluster.send(OutgoingMessage("orders", b"x"), queue)
        cluster.send(OutgoingMessage("%DLQ%billing", b"bad"), cluster.queues("%DLQ%billing")[0])
        with Client(cluster.name_server) as client:
            client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 1))
            client.commit_offsets("shipping", dict.fromkeys(client.read_queues("orders"), 2))
        yield cluster


@pytest.fixture
def clock() -> FakeClock:
    """The machine's clock, set ahead as the test says."""
    return FakeClock(0.0, base=SYSTEM_CLOCK)


def meter(mq: MockCluster, clock: FakeClock, groups: list[str] | None = None) -> ClusterMeter:
    return ClusterMeter(ClientOptions(name_servers=(mq.name_server,)), groups, clock=clock)


@pytest.fixture
def registry(mq: MockCluster, clock: FakeClock) -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    measured = meter(mq, clock)
    mq.asked.clear()
    registry.register(ClusterCollector(measured))
    assert not mq.asked, "registering asks nobody"
    yield registry
    measured.close()


def samples(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Return all values by name and the labels' values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_lag_by_group_topic_and_queue(registry: CollectorRegistry, clock: FakeClock) -> None:
    clock.now_s = 3600
    found = samples(registry)
    assert found["rocketmq_lag_messages", "billing"] == 2
    assert found["rocketmq_lag_messages", "shipping"] == 0
    assert 3600 <= found["rocketmq_lag_seconds", "billing"] < 4000
    assert found["rocketmq_lag_seconds", "shipping"] == 0
    assert found["rocketmq_topic_lag_messages", "billing", "orders"] == 2
    assert 3600 <= found["rocketmq_topic_lag_seconds", "billing", "orders"] < 4000
    for broker in ("broker-a", "broker-b"):
        assert found["rocketmq_queue_position", "billing", "orders", broker, "0"] == 1
        assert found["rocketmq_queue_lag_messages", "billing", "orders", broker, "0"] == 1
        assert found["rocketmq_queue_lag_seconds", "shipping", "orders", broker, "0"] == 0
    assert found["rocketmq_up",] == 1


def test_dead_letters_and_their_age(registry: CollectorRegistry, mq: MockCluster, clock: FakeClock) -> None:
    clock.now_s = 7200
    found = samples(registry)
    assert found["rocketmq_dead_letters", "billing"] == 1
    for age in ("oldest", "newest"):
        assert 7200 <= found[f"rocketmq_dead_letters_{age}_seconds", "billing"] < 7600
    assert ("rocketmq_dead_letters", "shipping") not in found, "it has no dead-letter topic"


def test_topic_rates_are_counters_by_broker(
    registry: CollectorRegistry, mq: MockCluster, clock: FakeClock
) -> None:
    assert samples(registry)["rocketmq_topic_written_messages_total", "orders", "broker-a"] == 2
    mq.send(OutgoingMessage("orders", b"x"), mq.queues("orders")[0])
    assert samples(registry)["rocketmq_topic_written_messages_total", "orders", "broker-a"] == 2, "cached"
    clock.now_s += 6
    found = samples(registry)
    assert found["rocketmq_topic_written_messages_total", "orders", "broker-a"] == 3
    assert found["rocketmq_topic_stored_messages", "orders", "broker-a"] == 3
    assert found["rocketmq_topic_stored_messages", "payments", "broker-b"] == 0


def test_a_sum_without_a_queue_is_no_counter(
    registry: CollectorRegistry, mq: MockCluster, clock: FakeClock
) -> None:
    mq.create_topic("wide", 4)
    for queue in mq.queues("wide"):
        mq.send(OutgoingMessage("wide", b"x"), queue)
    name = "rocketmq_topic_written_messages_total"
    assert samples(registry)[name, "wide", "broker-a"] == 4
    for at in range(6):  # of all topics' queues at the broker
        clock.now_s += 6
        refusal = Refuse(ResponseCode.NO_PERMISSION)
        refused = mq.inject(refusal, on=RequestCode.GET_MAX_OFFSET, after=at, broker="broker-a")
        rows = {key: value for key, value in samples(registry).items() if key[0] == name}
        assert (refused.hits, len(rows)) == (1, 5)
        assert set(rows.values()) <= {0, 2, 4}
        mq.heal()


def test_a_broker_that_is_down_is_named_and_its_queues_are_missing(
    registry: CollectorRegistry, mq: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    mq.stop_broker("broker-b", unregister=False)
    found = samples(registry)
    assert (found["rocketmq_broker_up", "broker-a"], found["rocketmq_broker_up", "broker-b"]) == (1, 0)
    assert found["rocketmq_lag_messages", "billing"] == 1
    assert not any(key[0] != "rocketmq_broker_up" and "broker-b" in key for key in found)
    assert "broker broker-b does not answer" in caplog.text


def test_a_broker_that_name_servers_have_forgotten_is_down(
    registry: CollectorRegistry, mq: MockCluster, clock: FakeClock
) -> None:
    """They forget one that dies within seconds: without its metric, no alert fires."""
    assert samples(registry)["rocketmq_broker_up", "broker-b"] == 1
    mq.stop_broker("broker-b")
    for clock.now_s in (6, 24 * 3600 - 6):
        assert samples(registry)["rocketmq_broker_up", "broker-b"] == 0
    clock.now_s = 24 * 3600 + 6
    assert ("rocketmq_broker_up", "broker-b") not in samples(registry), "it was removed"
    mq.start_broker("broker-b")
    clock.now_s += 6
    assert samples(registry)["rocketmq_broker_up", "broker-b"] == 1


def test_a_group_whose_next_message_cannot_be_seen_has_no_seconds(
    registry: CollectorRegistry, mq: MockCluster
) -> None:
    mq.fail(RequestCode.PULL_MESSAGE, code=ResponseCode.NO_PERMISSION, times=100)
    found = samples(registry)
    assert found["rocketmq_lag_messages", "billing"] == 2
    assert ("rocketmq_lag_seconds", "billing") not in found
    assert found["rocketmq_lag_seconds", "shipping"] == 0
    assert ("rocketmq_dead_letters_oldest_seconds", "billing") not in found
    assert found["rocketmq_broker_up", "broker-a"] == 1, "who refuses is up"


def test_no_name_server_is_a_metric_and_no_error(
    registry: CollectorRegistry, mq: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.tools.exporter.measurement._OPERATION_TIMEOUT_MS", 200)
    mq.stop_name_server()
    assert samples(registry) == {("rocketmq_up",): 0}


def test_named_groups_bring_their_topics_only(mq: MockCluster, clock: FakeClock) -> None:
    registry = CollectorRegistry()
    measured = meter(mq, clock, ["shipping", "nobody"])
    registry.register(ClusterCollector(measured))
    found = samples(registry)
    measured.close()
    assert {key[1] for key in found if key[0] == "rocketmq_lag_messages"} == {"shipping"}
    assert {key[1] for key in found if key[0] == "rocketmq_topic_stored_messages"} == {"orders"}


def test_all_metrics_are_declared_once(registry: CollectorRegistry) -> None:
    families = {family.name: family.documentation for family in registry.collect()}
    declared = {value.name: value.doc for value in vars(metrics).values() if isinstance(value, Metric)}
    assert families.items() <= declared.items()


def test_the_page_has_every_metric_and_every_alert() -> None:
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert {name.removesuffix("_total") for name in re.findall(r"`(rocketmq_\w+)`", page)} == KNOWN
    rules = yaml.safe_load((SHIPPED / "alerts.yml").read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert set(re.findall(r"`(RocketMQ\w+)`", page)) == alerts


# --- the server and the command ---


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_token_keeps_others_out(registry: CollectorRegistry) -> None:
    with MetricsServer(registry, "127.0.0.1", 0, token="secret-token") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret-token"}):
                code, text = get(server.url, **given)
                assert (code, "rocketmq_up" in text) == (401, False), given
            code, text = get(server.url, Authorization="Bearer secret-token")
        finally:
            server.shutdown()
            thread.join(60)
    names = {family.name for family in text_string_to_metric_families(text)}
    assert (code, "rocketmq_lag_seconds" in names) == (200, True)


def test_the_command_serves_until_ctrl_c(mq: MockCluster) -> None:
    command = [sys.executable, "-m", "pyspark_rocketmq", "exporter", "--all", "-n", mq.name_server]
    with subprocess.Popen(
        [*command, "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
            assert 'rocketmq_lag_messages{group="billing"} 2.0' in get(url)[1]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_the_command_says_what_is_wrong(capsys: Any, monkeypatch: Any, mq: MockCluster) -> None:
    cli = CommandLine(capsys, monkeypatch, mq.name_server)
    for words in ([], ["--all", "--group", "billing"]):
        done = cli("exporter", *words)
        assert (done.code, "--all" in done.err) == (2, True), done
    for host in ("0.0.0.0", "127.0.0.1"):
        done = cli("exporter", "--all", "--host", host, "--token", "", "--once")
        assert (done.code, "the token is empty" in done.err) == (2, True), done
    once = cli("exporter", "--group", "billing", "--once")
    assert (once.code, 'rocketmq_lag_messages{group="billing"} 2.0' in once.out) == (0, True), once
    assert cli("exporter", "--all", "--once", "-n", "127.0.0.1:1").code == 1
    refused = cli("exporter", "--all", "--once", "--json")
    assert refused.code != 0
    assert "--once prints Prometheus' text format" in refused.err
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    absent = cli("exporter", "--all")
    assert (absent.code, "pyspark-rocketmq[prometheus]" in absent.err) == (2, True), absent


# --- the dashboard and the rules ---


def queries() -> dict[str, str]:
    """Return every PromQL query that is shipped, with Grafana's variables replaced."""
    board = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }
    rules = yaml.safe_load((SHIPPED / "alerts.yml").read_text(encoding="utf-8"))
    found |= {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    return {name: text.replace("$__rate_interval", "5m") for name, text in found.items()}


def selected(node: Any) -> set[tuple[str, frozenset[str]]]:
    """Return the metrics of a query, and the labels by which it selects them."""
    if isinstance(node, promql_parser.VectorSelector):
        return {(node.name, frozenset(each.name for each in node.matchers.matchers))}
    if isinstance(node, promql_parser.MatrixSelector):
        return selected(node.vector_selector)
    inner = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param")]
    inner += getattr(node, "args", None) or []
    return set().union(*(selected(each) for each in inner if each is not None))


@pytest.mark.parametrize("name", queries())
def test_every_query_is_promql_of_our_metrics(name: str) -> None:
    found = selected(promql_parser.parse(queries()[name]))
    assert found
    assert {metric.removesuffix("_total") for metric, _ in found} <= KNOWN
    counters = {metric for metric, _ in found if metric.endswith("_total")}
    assert counters <= {"rocketmq_topic_written_messages_total"}


def test_the_dashboard_is_one_that_grafana_knows() -> None:
    board = json.loads((SHIPPED / "dashboard.json").read_text(encoding="utf-8"))
    known = Dashboard.from_json(board)
    assert (known.uid, len(known.panels or ())) == ("pyspark-rocketmq", len(board["panels"]))
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in board["panels"]]
    cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(cells) == len(set(cells)), "no panel covers another"
    assert all(0 <= x < 24 for x, _ in cells)
    variables = {each["name"] for each in board["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]+)", json.dumps(board))) <= variables


def test_the_command_prints_both(capsys: Any, monkeypatch: Any) -> None:
    cli = CommandLine(capsys, monkeypatch, None)
    for what, file in (("dashboard", "dashboard.json"), ("alerts", "alerts.yml")):
        assert cli("exporter", "--print", what).out == (SHIPPED / file).read_text(encoding="utf-8")


@pytest.mark.needs("prometheus")
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    promtool = shutil.which("promtool", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert promtool, "promtool is missing: `make prometheus` fetches it on Debian"
    (tmp_path / "alerts.yml").write_bytes((SHIPPED / "alerts.yml").read_bytes())
    (tmp_path / RULES.name).write_bytes(RULES.read_bytes())
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", RULES.name]):
        done = subprocess.run(
            [promtool, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
