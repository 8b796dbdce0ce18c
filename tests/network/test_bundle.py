"""The support bundle: what is in it, and what must not be, whatever is planted."""

from __future__ import annotations

import hashlib
import json
import resource
import stat
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import CommandLine
from tests.support.query_logs import QUERY, RUN, LogFile, progress

from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.testing import MockBroker
from pyspark_rocketmq.tools.bundle.archive import BundleArchive, hide_secrets
from pyspark_rocketmq.tools.bundle.collect import BundleScope, write_bundle
from pyspark_rocketmq.tools.bundle.query_events import recent_events

ACCESS, SECRET, TOKEN = "planted-User-01", 'planted-"Sécret"\\4711', "planted-Token-0815"
CREDENTIALS = Credentials(ACCESS, SECRET, TOKEN)
PLANTED = "planted"
"""In every secret, and in everything that users wrote."""

TRACE = f"""org.apache.spark.sql.streaming.StreamingQueryException: {PLANTED}-row in a message
\tat org.apache.spark.Executor.run(Executor.scala:12)
\tat {PLANTED}("secret")
Caused by: java.lang.NumberFormatException: For input string: "{PLANTED}-value"
Traceback (most recent call last):
  File "/jobs/job.py", line 7, in <module>
    option("secretKey", "{PLANTED}-source")
ValueError: {PLANTED}-body
"""


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 2, "%DLQ%billing": 1}, credentials=CREDENTIALS) as broker:
        for topic in ("orders", "%DLQ%billing"):
            message = OutgoingMessage(
                topic,
                f"{PLANTED}-body".encode(),
                keys=f"{PLANTED}-key",
                tags=f"{PLANTED}-tag",
                properties={f"{PLANTED}-name": f"{PLANTED}-property"},
            )
            broker.send(message, broker.queues(topic)[0])
        options = ClientOptions(
            name_servers=(broker.name_server,), access_key=ACCESS, secret_key=SECRET, security_token=TOKEN
        )
        with Client(options) as client:
            client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
        yield broker


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    """An old batch, a batch with everything that users write, and a failure."""
    folder = tmp_path / "log"
    folder.mkdir()
    log = LogFile(folder)
    now_ms = int(time.time() * 1000)
    log.write("progress", now_ms - 7_200_000, progress=progress(1, read=1, newest=2))
    report = progress(2, read=10, newest=70, observedMetrics={"worst": {"body": f"{PLANTED}-observed"}})
    report["sources"][0]["description"] = f"kafka with password={PLANTED}"
    report["sources"].append({"endOffset": {PLANTED: 3}, "metrics": {"n": "12", "m": 5}, "numInputRows": 4})
    report["sink"] = {"description": f"jdbc:{PLANTED}", "numOutputRows": 9}
    log.write("progress", now_ms, progress=report)
    log.write("terminated", now_ms, queryId=QUERY, failed=True, reason=f"{PLANTED}", trace=TRACE)
    with log.path.open("a") as file:
        file.write('{"event": "progress", "at": ')  # what is being written
    return log


@pytest.fixture
def wire_log(tmp_path: Path) -> Path:
    """The standard error of a program: its wire log, and its own lines."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime())
    line = f"{now} 127.0.0.1:9876 → #7 PULL_MESSAGE topic=orders queueId=0"
    file = tmp_path / "program.err"
    old = line.replace(now, "2020-01-01T00:00:00.000+00:00").replace("#7", "#6")
    no_time = line.replace(now, "2020-13-01T99:00:00.000+00:00").replace("#7", "#5")
    file.write_text(f"{old}\n{no_time}\n{line}\n{PLANTED}-printed body\n{line} remark='{TOKEN}'\n")
    return file


@pytest.fixture
def cli(capsys: Any, monkeypatch: pytest.MonkeyPatch, mq: MockBroker) -> CommandLine:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", ACCESS)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    monkeypatch.setenv("JDBC_PASSWORD", f"{PLANTED}-environment")
    return CommandLine(capsys, monkeypatch, mq.name_server)


def read(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_no_secret_and_nothing_of_users_is_in_it(
    cli: CommandLine, log: LogFile, wire_log: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.zip"
    words = ["--bundle", str(file), "--query-log", str(log.path.parent), "--wire-log", str(wire_log)]
    done = cli("report", *words, "-o", f"securityToken={TOKEN}", "-o", "wireLog=true")
    assert (done.code, done.err) == (0, ""), done
    for name, text in read(file).items():
        assert PLANTED not in name + text, name
        for secret in (SECRET, json.dumps(SECRET)[1:-1], json.dumps(SECRET, ensure_ascii=False)[1:-1]):
            assert secret not in text, name
    assert PLANTED not in done.out
    assert PLANTED.encode() not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_it_has_versions_routes_offsets_lag_findings_and_logs(
    cli: CommandLine, mq: MockBroker, log: LogFile, wire_log: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.zip"
    words = ["--bundle", str(file), "--query-log", str(log.path.parent), "--wire-log", str(wire_log)]
    told = cli("report", *words, "-o", f"securityToken={TOKEN}", "-o", "wireLog=true", "--json").json()
    texts = read(file)
    parts = {name: json.loads(text) for name, text in texts.items() if name.endswith(".json")}
    assert parts["versions.json"]["packages"]["pyspark-rocketmq"]
    assert parts["options.json"]["secretKey"] == "(set)"
    assert list(parts["brokers.json"]) == ["broker-a"]
    assert parts["routes.json"]["orders"] == ["broker-a r2 w2 perm 6"]
    assert parts["offsets.json"]["orders"] == {"broker-a:0": [0, 1], "broker-a:1": [0, 0]}
    billing = parts["lag.json"]["groups"]["billing"]
    assert [queue["lag"] for queue in billing["queues"]] == [1, 0]
    assert billing["deadLetters"]["messages"] == 1
    assert "broker broker-a, master" in {finding["subject"] for finding in parts["doctor.json"]}
    assert "GET_ROUTEINFO_BY_TOPIC" in texts["wire.log"]
    assert [line.partition("#")[2][:14] for line in texts["program-wire.log"].splitlines()] == [
        "7 PULL_MESSAGE",
        "7 PULL_MESSAGE",
    ]
    batch, end = map(json.loads, texts[f"query-log/{RUN}.jsonl"].splitlines())
    assert (batch["progress"]["batchId"], batch["progress"]["durationMs"]["latestOffset"]) == (2, 40)
    ours, others = batch["progress"]["sources"]
    assert ours["endOffset"]["offsets"]["orders"]["broker-a"]["0"] == 10
    assert (others["endOffset"], others["numInputRows"]) == ("of another source", 4)
    assert batch["progress"]["sink"] == {"numOutputRows": 9}
    assert end["reason"] == "ValueError"
    assert end["frames"] == [
        "at org.apache.spark.Executor.run(Executor.scala:12)",
        'File "/jobs/job.py", line 7, in <module>',
    ]
    manifest = parts["manifest.json"]
    assert manifest["leftOut"].startswith("bodies, keys and properties")
    assert [each["name"] for each in manifest["files"]] == [name for name in texts if name != "manifest.json"]
    for each in manifest["files"]:
        data = texts[each["name"]].encode()
        assert (each["bytes"], each["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert [each["name"] for each in told["files"]] == list(texts)


def test_a_cluster_that_is_away_does_not_prevent_it(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.tools.bundle.collect._TIMEOUT_MS", 200)
    monkeypatch.setattr("pyspark_rocketmq.tools.exporter.measurement._OPERATION_TIMEOUT_MS", 200)
    file = tmp_path / "bundle.zip"
    done = cli("report", "--bundle", str(file), "-n", "127.0.0.1:1")
    assert done.code == 0, done
    texts = read(file)
    assert "127.0.0.1:1" in json.loads(texts["brokers.json"])["error"]
    assert "127.0.0.1:1" in texts["doctor.json"]
    assert json.loads(texts["lag.json"])["groups"] == {}


def test_a_broker_that_is_down_is_named(
    cli: CommandLine, mq: MockBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.tools.bundle.collect._TIMEOUT_MS", 200)
    mq.stop_broker("broker-a", unregister=False)
    file = tmp_path / "bundle.zip"
    assert cli("report", "--bundle", str(file), "--topic", "orders").code == 0
    assert list(json.loads(read(file)["lag.json"])["away"]) == ["broker-a"]


def test_without_a_cluster_it_has_this_machine(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.zip"
    assert CommandLine(capsys, monkeypatch, None)("report", "--bundle", str(file)).code == 0
    assert list(read(file)) == ["versions.json", "doctor.json", "manifest.json"]


@pytest.mark.parametrize("words", [("--topic", "orders"), ("--bundle", "b.zip", "--group", "billing")])
def test_a_topic_or_group_needs_a_cluster(
    words: tuple[str, ...], capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CommandLine(capsys, monkeypatch, None)("report", *words)
    assert (done.code, "needs --namesrv" in done.err) == (2, True), done
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_is_told(cli: CommandLine, tmp_path: Path) -> None:
    there = tmp_path / "bundle.zip"
    there.write_text("mine")
    done = cli("report", "--bundle", str(there))
    assert (done.code, "the file exists" in done.err, there.read_text()) == (2, True, "mine"), done
    assert "cannot be written" in cli("report", "--bundle", str(tmp_path / "missing" / "b.zip")).err
    assert "belong to --bundle" in cli("report", "--group", "billing").err


def test_an_option_names_the_cluster_too(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, mq: MockBroker
) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", ACCESS)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)
    cli = CommandLine(capsys, monkeypatch, None)
    given = ("-o", f"namesrvAddr={mq.name_server}", "--json")
    assert list(cli("report", *given).json()["brokers"]) == ["broker-a"]
    assert "broker broker-a, master" in {finding["subject"] for finding in cli("doctor", *given).json()}
    done = cli("topics", "-o", f"nameServer={mq.name_server}", "-n", "127.0.0.1:1")
    assert (done.code, "have different values" in done.err) == (2, True), done


def test_a_bundle_that_fails_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "bundle.zip"
    with pytest.raises(ZeroDivisionError), BundleArchive(file, ()):
        raise ZeroDivisionError
    assert not file.exists()


def test_secrets_are_hidden_in_names_and_within_texts_the_longest_first() -> None:
    value = {"key-of-abc": ["abcd!", ("abc", 7, None, True)]}
    assert hide_secrets(value, ("abc", "abcd", "")) == {"key-of-***": ["***!", ["***", 7, None, True]]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PGPASSWORD", f"{PLANTED}-word"),
        ("MYSQL_PWD", f"{PLANTED}-word"),
        ("DB_PASS", f"{PLANTED}-word"),
        ("TLS_PASSPHRASE", f"{PLANTED}-word"),
        ("APIKEY", f"{PLANTED}-word"),
        ("secretKey", f"{PLANTED}-word"),
        ("DATABASE_URL", f"postgresql://me:{PLANTED}-word@db/shop"),
        ("PYSPARK_SUBMIT_ARGS", f"--conf spark.hadoop.secretKey={PLANTED}-word pyspark-shell"),
        ("AWS_SESSION_TOKEN", f"{PLANTED}-word"),
    ],
)
def test_secrets_of_the_environment_are_hidden(tmp_path: Path, name: str, value: str) -> None:
    log = tmp_path / "wire.log"
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    log.write_text(
        f"{moment} 10.0.0.1:10911 → #1 PULL_MESSAGE consumerGroup={PLANTED}-word\n", encoding="utf-8"
    )
    environ = {name: value, "PWD": "/home/me/jobs", "OLDPWD": "PULL_MESSAGE"}
    path = tmp_path / "bundle.zip"
    write_bundle(path, None, BundleScope(wire_log=log), environ=environ)
    with zipfile.ZipFile(path) as archive:
        text = "".join(archive.read(each).decode() for each in archive.namelist())
    assert "#1 PULL_MESSAGE consumerGroup=" in text
    assert PLANTED not in text


def test_an_error_of_this_package_keeps_its_text(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    ours = "pyspark_rocketmq.errors.DataLossError: [OFFSETS_EXPIRED] messages are gone"
    log.write("terminated", 5, failed=True, trace=f"Traceback (most recent call last):\n{ours}\n")
    assert [event["reason"] for event in recent_events(log.path, 5)] == [ours]
    assert list(recent_events(log.path, 6)) == []


@pytest.mark.parametrize("room", [0, 500, 1_500])
def test_a_disk_that_is_full_leaves_no_archive(tmp_path: Path, room: int) -> None:
    path = tmp_path / "bundle.zip"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(OptionError, match="the bundle cannot be written: File too large"):
            write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not path.exists()


def write(path: Path) -> None:
    with BundleArchive(path, ()) as archive:
        archive.add("a.json", "a", "".join(map(chr, range(40, 1_300))))
        archive.finish()
