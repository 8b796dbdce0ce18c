"""The dashboard's server, and its page in a real browser."""

from __future__ import annotations

import hashlib
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
from http.cookiejar import CookieJar
from importlib.resources import files
from pathlib import Path

import pytest
import uvicorn
from selenium import webdriver
from selenium.webdriver.common.by import By
from tests.support.cli import CommandLine
from tests.support.clocks import FakeClock
from tests.support.query_logs import QUERY, RUN, LogFile, progress
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, ClientOptions, OutgoingMessage
from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dashboard.cluster import ClusterView
from pyspark_rocketmq.dashboard.history import QueryLogReader
from pyspark_rocketmq.dashboard.server import create_app, listen
from pyspark_rocketmq.dashboard.spark_metrics import SparkMetrics
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockBroker, MockCluster
from pyspark_rocketmq.testing.faults import Refuse

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
UPLOT_SHA256 = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
"""Of uPlot 1.6.32 as its package has it: what is shipped is what its authors released."""


START_MS = 1_769_846_400_000
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--force-device-scale-factor=1", "--window-size=1280,1040"),
)
DRAWN = """
return [...document.querySelectorAll("#queries canvas")].every((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value))
"""


class Served:
    """An application on a loopback port, in a thread."""

    def __init__(self, app: object) -> None:
        self._sock = listen("127.0.0.1", 0)
        config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._sock]})
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}"

    def __enter__(self) -> Served:
        self._thread.start()
        eventually(lambda: self._server.started, what="the server")
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._sock.close()

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        return self.ask("GET", path, **headers)

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 4, "payments": 2, "orders-dead": 1}) as broker:
        for number in range(40):
            broker.send(OutgoingMessage("orders", str(number).encode()), broker.queue("orders", number % 4))
        broker.send(OutgoingMessage("orders-dead", b"bad"))
        with Client(broker.name_server) as client:
            queues = client.read_queues("orders")
            client.commit_offsets("revenue", dict.fromkeys(queues, 2))
        yield broker


@pytest.fixture
def view(mq: MockBroker) -> Iterator[ClusterView]:
    view = ClusterView(ClientOptions(name_servers=(mq.name_server,)), dead_letters="orders-dead")
    yield view
    view.close()


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    log = LogFile(tmp_path)
    log.write("started", START_MS, queryId=QUERY, name="revenue")
    for batch in range(40):
        report = progress(batch, read=100 * batch, newest=100 * batch + 60 * (batch % 7))
        log.write("progress", START_MS + 1_000 * batch, progress=report)
    return log


@pytest.fixture
def served(log: LogFile, view: ClusterView) -> Iterator[Served]:
    clock = FakeClock()
    clock.now_s = START_MS / 1000 + 41
    with Served(create_app(QueryLogReader(log.path.parent), view, clock=clock)) as served:
        yield served


def test_the_state_has_queries_and_the_cluster(served):
    code, text = served.get("/state")
    state = json.loads(text)
    assert code == 200
    (query,) = state["queries"]
    assert (query["name"], len(query["batches"]), query["ended"]) == ("revenue", 40, False)
    cluster = state["cluster"]
    assert cluster["error"] is None
    assert {row["topic"]: row["messages"] for row in cluster["topics"]} == {
        "orders": 40, "payments": 0, "orders-dead": 1,
    }  # fmt: skip
    assert cluster["groups"] == [{"group": "revenue", "topics": "orders", "lag": 32}]
    assert cluster["deadLetters"] == {"topic": "orders-dead", "messages": 1}
    assert [row["broker"] for row in cluster["brokers"]] == ["broker-a"]


def test_what_the_living_brokers_say_is_shown_and_the_silent_one_named(log):
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"x"), queue)
        with Client(mq.name_server) as client:
            client.commit_offsets("revenue", dict.fromkeys(client.read_queues("orders"), 0))
        mq.stop_broker("broker-b", unregister=False)
        view = ClusterView(ClientOptions(name_servers=(mq.name_server,)))
        with Served(create_app(QueryLogReader(log.path.parent), view)) as served:
            cluster = json.loads(served.get("/state")[1])["cluster"]
        view.close()
    assert [each["broker"] for each in cluster["away"]] == ["broker-b"]
    assert cluster["error"] is None
    assert cluster["groups"] == [{"group": "revenue", "topics": "orders", "lag": 1}]
    assert cluster["topics"] == [{"topic": "orders", "queues": 1, "messages": 1}]
    versions = {row["broker"]: row["version"] for row in cluster["brokers"]}
    assert versions["broker-a"] != versions["broker-b"] == "unknown"


def test_a_broker_that_name_servers_have_forgotten_is_named() -> None:
    clock = FakeClock(base=SYSTEM_CLOCK)
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        view = ClusterView(ClientOptions(name_servers=(mq.name_server,)), clock=clock)
        assert view.state()["away"] == []
        mq.stop_broker("broker-b")
        clock.now_s += 6
        told = view.state()
        view.close()
    (away,) = told["away"]
    assert (away["broker"], "no name server knows it any more" in away["cause"]) == ("broker-b", True)
    assert [row["broker"] for row in told["brokers"]] == ["broker-a"]


def test_a_broker_that_refuses_is_named_with_its_cause(mq):
    mq.inject(Refuse(ResponseCode.NO_PERMISSION, "not yours"), on=RequestCode.GET_BROKER_RUNTIME_INFO)
    view = ClusterView(ClientOptions(name_servers=(mq.name_server,)))
    told = view.state()
    view.close()
    assert [(each["broker"], "not yours" in each["cause"]) for each in told["away"]] == [("broker-a", True)]
    assert [row["version"] for row in told["brokers"]] == ["unknown"]


def test_a_rate_that_is_no_number_is_unknown(view, log, monkeypatch):
    numbers = {"putTps": "NaN NaN NaN", "getTransferredTps": "Infinity", "commitLogDiskRatio": "0.5"}
    monkeypatch.setattr(Admin, "runtime_infos", lambda *_, on_away: {"broker-a": numbers})
    with Served(create_app(QueryLogReader(log.path.parent), view)) as served:
        code, text = served.get("/state")
    assert code == 200
    (row,) = json.loads(text)["cluster"]["brokers"]
    assert (row["inPerSecond"], row["outPerSecond"], row["diskRatio"]) == (None, None, 0.5)


def test_what_is_not_shown_is_counted_and_dead_letters_are_counted_wherever_they_are():
    names = {f"topic-{number:03}": 1 for number in range(205)}
    with MockBroker({**names, "%DLQ%billing": 1}) as mq:
        mq.send(OutgoingMessage("%DLQ%billing", b"bad"))
        with Client(mq.name_server) as client:
            for number in range(45):
                client.commit_offsets(f"group-{number:02}", dict.fromkeys(client.read_queues("topic-000"), 0))
        view = ClusterView(ClientOptions(name_servers=(mq.name_server,)), dead_letters="%DLQ%billing")
        told = view.state()
        view.close()
    assert told["deadLetters"] == {"topic": "%DLQ%billing", "messages": 1}
    assert (len(told["topics"]), len(told["groups"])) == (200, 40)
    assert told["there"] == {"topics": 205, "groups": 45}


def test_dead_letters_that_nobody_can_count_are_unknown():
    view = ClusterView(ClientOptions(name_servers=("127.0.0.1:1",)), dead_letters="dead")
    assert view.state()["deadLetters"] == {"topic": "dead", "messages": None}
    view.close()


def test_a_cause_that_is_no_utf_8_is_shown(log):
    log.write("terminated", START_MS + 50_000, queryId=QUERY, failed=True, reason="no \ud83d")
    with Served(create_app(QueryLogReader(log.path.parent), None)) as served:
        code, text = served.get("/state")
    assert (code, json.loads(text)["queries"][0]["reason"]) == (200, "no \ud83d")


def test_no_broker_at_all_is_told(mq):
    mq.unregister("broker-a")
    view = ClusterView(ClientOptions(name_servers=(mq.name_server,)))
    assert "no broker is registered" in view.state()["error"]
    view.close()


def test_a_cluster_that_is_away_is_told_and_the_queries_are_still_there(log):
    view = ClusterView(ClientOptions(name_servers=("127.0.0.1:1",)))
    with Served(create_app(QueryLogReader(log.path.parent), view)) as served:
        state = json.loads(served.get("/state")[1])
    view.close()
    assert "127.0.0.1:1" in state["cluster"]["error"]
    assert len(state["queries"]) == 1


def test_it_only_reads_and_answers_this_machine_s_names_only(served):
    assert served.ask("POST", "/state")[0] == 405
    assert served.ask("DELETE", "/")[0] == 405
    assert served.get("/state", Host="evil.example")[0] == 403
    assert served.get("/state", Host="localhost:80")[0] == 200
    assert served.get("/assets/..%2f..%2f__init__.py")[0] == 404
    assert served.get("/assets/uplot.LICENSE")[0] == 404


def test_with_a_token_nobody_else_gets_anything(log):
    with Served(create_app(QueryLogReader(log.path.parent), None, token="secret-token")) as served:
        for path in ("/", "/state", "/assets/dashboard.js", "/state?token=wrong"):
            assert served.get(path)[0] == 401, path
        assert served.get("/state?token=secret-token", Host="any.example")[0] == 200
        assert served.get("/state", Authorization="Bearer secret-token")[0] == 200


def test_a_browser_keeps_the_tokens_of_two_dashboards_of_a_host():
    jar = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with (
        Served(create_app(None, None, token="one")) as one,
        Served(create_app(None, None, token='t"w;o')) as two,
    ):
        for url in (f"{one.url}/?token=one", f"{two.url}/?token=t%22w%3Bo"):
            browser.open(url, timeout=60).close()
        assert len(jar) == 2
        for served in (one, two, one):
            with browser.open(f"{served.url}/state", timeout=60) as answer:
                assert json.load(answer)["error"] is None


def test_a_token_that_lets_in_everybody_is_refused(capsys, monkeypatch):
    for host in ("0.0.0.0", "127.0.0.1"):
        done = CommandLine(capsys, monkeypatch, "127.0.0.1:1")("dashboard", "--host", host, "--token", " ")
        assert (done.code, "the token is empty" in done.err) == (2, True), done


def test_the_chart_library_is_the_released_one():
    page = files("pyspark_rocketmq.dashboard") / "page"
    assert hashlib.sha256((page / "uplot.min.js").read_bytes()).hexdigest() == UPLOT_SHA256
    assert "MIT" in (page / "uplot.LICENSE").read_text()


def test_the_command_says_what_is_wrong(capsys, monkeypatch, tmp_path):
    cli = CommandLine(capsys, monkeypatch, None)
    assert "nothing to show" in cli("dashboard").err
    both = cli("dashboard", "--query-log", str(tmp_path), "--spark", "http://127.0.0.1:4040")
    assert (both.code, "give --query-log or --spark" in both.err) == (2, True), both
    assert cli("dashboard", "--query-log", str(tmp_path / "missing")).code == 2
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        done = cli("dashboard", "--query-log", str(tmp_path), "--port", port)
        letters = cli("dashboard", "--query-log", str(tmp_path), "--port", port, "--dead-letters", "dead")
    assert (letters.code, "--dead-letters needs --namesrv" in letters.err) == (2, True), letters
    assert (done.code, "cannot listen" in done.err) == (2, True), done


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_is_printed_as_a_browser_takes_it(host, capsys, monkeypatch, tmp_path):
    asked = []

    def serve(app: object, sock: object) -> None:
        asked.append((app, sock))

    monkeypatch.setattr("pyspark_rocketmq.dashboard.server.serve", serve)
    cli = CommandLine(capsys, monkeypatch, None)
    done = cli("dashboard", "--query-log", str(tmp_path), "--host", host, "--port", "0", "--json")
    assert (done.code, len(asked)) == (0, 1), done
    assert re.fullmatch(r"http://\[::1\]:\d+/", done.json()["url"])


def test_ctrl_c_ends_the_command_cleanly(log):
    command = [sys.executable, "-m", "pyspark_rocketmq", "dashboard", "--query-log", str(log.path.parent)]
    environ = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    with subprocess.Popen(
        [*command, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        try:
            url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
            with urllib.request.urlopen(url + "state", timeout=60) as answer:
                assert len(json.load(answer)["queries"]) == 1
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert process.stderr.read() == ""
        finally:
            process.kill()


# --- in a browser ---


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert all((chromium, driver)), "Chromium and chromedriver are needed: make browser installs them"
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("profile")
    for argument in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as chrome:
        yield chrome


def visit(browser: webdriver.Chrome, url: str) -> None:
    """Open a page. The one before polls its server until it is left; its requests and errors are no part."""
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(url)


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def text_of(browser: webdriver.Chrome, selector: str) -> str:
    """Return what an element shows now; the page replaces its elements while it is looked at."""
    script = "return document.querySelector(arguments[0])?.innerText ?? ''"
    return str(browser.execute_script(script, selector))


def requested(browser: webdriver.Chrome) -> set[str]:
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
    return {event["params"]["request"]["url"] for event in sent}


def test_the_page_sums_up_the_queues_that_it_does_not_name(browser, served, log):
    for batch in range(2):
        log.write(
            "progress", START_MS + 40_000 + batch, progress=progress(batch, read=10, newest=15, queues=1_000)
        )
    visit(browser, served.url)
    eventually(lambda: "989 others" in text_of(browser, "#queries .lag .u-legend"), what="the other queues")
    legend = text_of(browser, "#queries .lag .u-legend")
    assert [f"orders broker-a:{number}" for number in range(989, 1_000)] == re.findall(
        r"orders broker-a:\d+", legend
    )
    assert f"{sum(5 + 25 * number for number in range(1_000)):,}" in text_of(browser, "#queries article")


@pytest.mark.parametrize(
    ("scheme", "background"), [("light", "rgb(245, 246, 250)"), ("dark", "rgb(18, 21, 28)")]
)
def test_the_page_draws_queries_and_cluster(browser, served, scheme, background, tmp_path):
    prefer(browser, scheme)
    visit(browser, served.url)
    eventually(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#queries canvas")) == 3, what="the charts")
    eventually(lambda: "Brokers" in text_of(browser, "#cluster"), what="the cluster")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == background
    card = text_of(browser, "#queries article")
    for text in (
        "revenue",
        "running",
        "messages behind",
        "1,239 rows",
        "Where a batch's time goes",
        "41 s behind",
    ):
        assert text in card, card
    legend = text_of(browser, "#queries .lag .u-legend")
    assert [f"orders broker-a:{number}" for number in range(4)] == re.findall(r"orders broker-a:\d", legend)
    cluster = text_of(browser, "#cluster")
    assert re.search(r"revenue\s+orders\s+32", cluster), cluster
    assert "dead letters in orders-dead" in cluster
    assert browser.execute_script(DRAWN), "a chart is blank"
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    addresses = {url for url in requested(browser) if not url.startswith(("data:", "chrome"))}
    assert addresses
    assert all(url.startswith(served.url + "/") for url in addresses), addresses
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    picture = (PICTURES if os.environ.get("SCREENSHOTS") else tmp_path) / f"dashboard-{scheme}.png"
    assert browser.save_screenshot(str(picture))
    assert picture.stat().st_size > 20_000


def test_a_driver_that_is_away_is_told_and_the_cluster_is_still_there(browser, view):
    with Served(create_app(SparkMetrics("http://127.0.0.1:1"), view)) as served:
        visit(browser, served.url)
        eventually(lambda: "does not answer" in text_of(browser, "#queries"), what="the error")
        eventually(lambda: "Brokers" in text_of(browser, "#cluster"), what="the cluster")


def test_the_page_follows_what_happens(browser, served, log, view):
    prefer(browser, "light")
    visit(browser, served.url)
    head = "#queries article .head"
    eventually(lambda: "running" in text_of(browser, head), what="the query")
    log.write("terminated", START_MS + 60_000, queryId=QUERY, reason="<b>it broke</b>")
    eventually(lambda: "failed" in text_of(browser, head), what="the end")
    assert "<b>it broke</b>" in text_of(browser, "#queries")
    browser.find_element(By.ID, "theme").click()
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"


def test_a_failure_shows_its_cause_first_and_its_trace_on_a_click(browser, served, log, tmp_path):
    other = LogFile(tmp_path, "1f0e7c9a-0000-4000-8000-000000000000")
    other.write("started", START_MS + 1, queryId="other", name="broken")
    trace = "SparkException: Job aborted\n" + "\tat frame\n" * 99 + "Caused by: <b>disk full</b>"
    other.write(
        "terminated", START_MS + 2, queryId="other", failed=True, reason="<b>disk full</b>", trace=trace
    )
    visit(browser, served.url)
    first = "#queries article:first-child"
    eventually(lambda: "failed" in text_of(browser, f"{first} .head"), what="the failure")
    assert "1 running · 1 failed · 0 ended" in text_of(browser, "#status")
    card = text_of(browser, first)
    assert "<b>disk full</b>" in card
    assert "Job aborted" not in card
    browser.execute_script(f"document.querySelector('{first} summary').click()")
    assert "Job aborted" in text_of(browser, first)
    browser.execute_script(
        f"const box = document.querySelector('{first} pre'); box.scrollTop = 50; box.focus();"
        "document.querySelector('#queries article').dataset.old = 'yes'"
    )
    gone = "return document.querySelector('[data-old]') === null"
    eventually(lambda: browser.execute_script(gone), what="another look of the page")
    kept = "return [box.parentNode.open, box.scrollTop, document.activeElement === box]"
    found = browser.execute_script(f"const box = document.querySelector('{first} pre'); {kept}")
    assert found == [True, 50, True]


def test_charts_of_forgotten_runs_go(browser, log, view):
    reader = QueryLogReader(log.path.parent)
    with Served(create_app(reader, view)) as served:
        visit(browser, served.url)
        kept = "return [...new Set([...charts.keys(), ...latest.keys()].map((key) => key.split(' ')[0]))]"
        eventually(lambda: browser.execute_script(kept) == [RUN], what="the charts")
        for number in range(50):
            other = LogFile(log.path.parent, f"run-{number}")
            other.write("started", START_MS + 60_000 + number, queryId=f"query-{number}", name="other")
        eventually(lambda: browser.execute_script(kept) == [], what="the charts' end")
    assert "revenue" not in text_of(browser, "#queries")


def test_a_group_s_lag_is_explained_beside_its_query_s(browser, served, log):
    log.write("progress", START_MS + 41_000, progress=progress(41, read=10, newest=12, group="revenue"))
    visit(browser, served.url)
    eventually(lambda: "its query" in text_of(browser, "#cluster"), what="the query's lag")
    cluster = text_of(browser, "#cluster")
    assert re.search(r"revenue\s+orders\s+32\s+158", cluster), cluster
    assert "commitIntervalMs" in cluster
