"""The dev cluster runs real servers of several versions and shapes, and leaves none behind."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from tests.support.patient import patient_mqadmin
from tests.support.releases import version_name
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.devcluster import DevCluster, layout
from pyspark_rocketmq.errors import DevClusterError, OptionError


@pytest.fixture(scope="module")
def replicated() -> Iterator[DevCluster]:
    """Two masters with a slave each; tests may stop and start its servers, but leave all of them running."""
    with DevCluster(brokers=2, slaves=1) as cluster:
        yield cluster


def _listing(cluster: DevCluster) -> list[list[str]]:
    """Return the brokers that mqadmin sees: name, id, address."""
    lines = patient_mqadmin(cluster, "clusterList").splitlines()
    return [line.split()[1:4] for line in lines if line.startswith("DefaultCluster")]


@pytest.mark.needs("java")
def test_mqadmin_sees_the_broker(mq: DevCluster) -> None:
    assert _listing(mq) == [["broker-a", "0", mq.broker("broker-a").address]]


@pytest.mark.needs("java")
def test_a_failed_mqadmin_command_raises_with_its_output(mq: DevCluster) -> None:
    with pytest.raises(DevClusterError, match="mqadmin topicRoute -t no-such-topic failed") as caught:
        mq.mqadmin("topicRoute", "-t", "no-such-topic")
    assert "No topic route info" in caught.value.log_tail


@pytest.mark.needs("java")
def test_a_topic_of_the_fixture_has_its_queues(mq: DevCluster, topic: TopicFactory) -> None:
    route = patient_mqadmin(mq, "topicRoute", "-t", topic(queues=3)).replace(" ", "")
    assert '"readQueueNums":3' in route
    assert '"writeQueueNums":3' in route


def test_4_9_runs_too(mq49: DevCluster) -> None:
    listing = patient_mqadmin(mq49, "clusterList")
    assert mq49.broker().address in listing
    assert "V4_9_7" in listing


@pytest.mark.needs("java")
def test_java_programs_compile_and_run_against_the_jars(mq: DevCluster, tmp_path: Path) -> None:
    source = tmp_path / "Version.java"
    source.write_text(
        "public class Version { public static void main(String[] a) {"
        " System.out.println(org.apache.rocketmq.common.MQVersion.getVersionDesc("
        "org.apache.rocketmq.common.MQVersion.CURRENT_VERSION) + a[0]); } }"
    )
    classes = mq.compile_java(source)
    assert mq.run_java("Version", "!", classes=classes).strip() == version_name(mq.version) + "!"


def test_java_that_does_not_compile_says_why(mq: DevCluster, tmp_path: Path) -> None:
    source = tmp_path / "Broken.java"
    source.write_text("public class Broken { int x = nothing; }")
    with pytest.raises(DevClusterError, match="do not compile") as caught:
        mq.compile_java(source)
    assert "cannot find symbol" in caught.value.log_tail


@pytest.mark.needs("cluster")
def test_masters_and_slaves_register(replicated: DevCluster) -> None:
    expected = [[b.broker_name, str(b.broker_id), b.address] for b in replicated.brokers]
    assert sorted(_listing(replicated)) == sorted(expected)
    assert [b.name for b in replicated.brokers] == ["broker-a", "broker-b", "broker-a-1", "broker-b-1"]


@pytest.mark.needs("cluster")
def test_a_killed_broker_comes_back_where_it_was(replicated: DevCluster) -> None:
    broker = replicated.broker("broker-b")
    pid, address = broker.pid, broker.address
    broker.kill()
    assert not broker.is_running
    broker.start()
    assert broker.address == address
    assert broker.pid not in {None, pid}
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=60):
        pass


@pytest.mark.needs("cluster")
def test_a_broker_registers_with_a_name_server_that_starts_after_it(replicated: DevCluster) -> None:
    (name_server,), broker = replicated.name_servers, replicated.broker("broker-b")
    broker.kill()
    name_server.kill()
    broker.launch()
    eventually(lambda: "boot success" in broker.log_tail())
    name_server.start()
    broker.await_up()
    assert [broker.broker_name, "0", broker.address] in _listing(replicated)


@pytest.mark.needs("cluster")
def test_a_paused_broker_keeps_its_connections_and_its_port(replicated: DevCluster) -> None:
    broker = replicated.broker("broker-b")
    assert broker.pid is not None
    process = psutil.Process(broker.pid)
    broker.pause()
    try:
        eventually(lambda: process.status() == psutil.STATUS_STOPPED)
        with socket.create_connection(("127.0.0.1", int(broker.address.rpartition(":")[2])), timeout=60):
            assert broker.is_running
    finally:
        broker.resume()
    eventually(lambda: process.status() != psutil.STATUS_STOPPED)


@pytest.mark.needs("cluster")
def test_asking_for_a_broker_that_is_not_there(replicated: DevCluster) -> None:
    with pytest.raises(OptionError, match=r"no such broker.*broker-c"):
        replicated.broker("broker-c")


@pytest.mark.needs("cluster")
def test_a_broken_setting_shows_the_brokers_own_words(tmp_path: Path) -> None:
    cluster = DevCluster(broker_config={"brokerRole": "SLAVE", "brokerId": "0"}, workdir=tmp_path)
    with pytest.raises(DevClusterError, match="broker-a ended while it started") as caught:
        cluster.start()
    assert "brokerId must be > 0" in caught.value.log_tail
    assert not _java_processes_below(tmp_path)


@pytest.mark.needs("cluster")
def test_a_port_that_is_taken_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose = layout.free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answers = iter([taken.getsockname()[1]])

        def first_a_taken_one(source: random.Random, offsets: Sequence[int] = (0,)) -> int:
            return next(answers, None) or choose(source, offsets)

        monkeypatch.setattr(layout, "free_port", first_a_taken_one)
        with DevCluster() as cluster:
            assert cluster.name_server != f"127.0.0.1:{taken.getsockname()[1]}"
            assert all(server.is_running for server in cluster.servers)


OWNER = """
import time
from pyspark_rocketmq.devcluster import DevCluster
mq = DevCluster().start()
print(mq.home, *(server.pid for server in mq.servers), flush=True)
time.sleep(300)
"""


@pytest.mark.needs("cluster")
def test_no_server_is_left_when_the_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        home, *pids = owner.stdout.readline().split()
        assert len(pids) == 2
        assert len(_java_processes_below(Path(home))) == 2
        owner.kill()
    eventually(lambda: not _java_processes_below(Path(home)), 20, what="the end of the servers")
    eventually(lambda: not Path(home).exists(), 20, what="the removal of the cluster's folder")


@pytest.mark.needs("cluster")
def test_the_commands_start_show_and_stop_a_cluster(mq: DevCluster, tmp_path: Path) -> None:
    # The jars are where `mq` has them; only the state is this test's own.
    ivy = mq.jars[0].parents[1]
    (tmp_path / "ivy").symlink_to(ivy)
    (tmp_path / "locks").symlink_to(ivy.parent / "locks")

    started = _command(tmp_path, "start")
    assert "its name server is 127.0.0.1:" in started.stdout
    try:
        assert len(_java_processes_below(tmp_path)) == 2
        status = _command(tmp_path, "status")
        assert status.stdout.count("running") == 2
        again = _command(tmp_path, "start", exit_code=1)
        assert "a cluster runs already" in again.stderr
        address = json.loads(_command(tmp_path, "stop", "--keep-data", "--json").stdout)["nameServer"]
        assert address in started.stdout
        assert address in _command(tmp_path, "start").stdout, "the port changed over a restart"
    finally:
        stopped = _command(tmp_path, "stop")
    assert "stopped" in stopped.stdout
    assert not _java_processes_below(tmp_path)
    assert "no cluster" in _command(tmp_path, "status", exit_code=1).stdout
    assert "no cluster to stop" in _command(tmp_path, "stop").stdout


def _command(cache: Path, *args: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", "from pyspark_rocketmq.cli import main; main()", "cluster", *args],
        env={**os.environ, "PYSPARK_ROCKETMQ_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done


def _java_processes_below(folder: Path) -> list[int]:
    marker = f"-Duser.home={folder}/"
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(argument.startswith(marker) for argument in process.info["cmdline"] or ())
    ]
