"""Planted faults: the examination names each one's cause, and soon."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.support.certificates import Authority
from tests.support.clocks import FakeClock
from tests.support.scripted_peer import ScriptedPeer
from tests.support.wait import BUSY, within

from pyspark_rocketmq.client import Client, ClientOptions, OutgoingMessage, Producer
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import MockCluster, Refuse, Silence
from pyspark_rocketmq.tools import machine
from pyspark_rocketmq.tools.doctor import examine
from pyspark_rocketmq.tools.findings import Finding, Verdict
from pyspark_rocketmq.tools.machine import examine_machine

SOON_S = 5.0
"""What is promised; every look of the examination gives up after 2 s, and other requests after 10 s."""


def looked(name_server: str, *, clock: Clock | None = None, **more: object) -> list[Finding]:
    """Return what is not good; without a clock, time passes only when the examination pauses."""
    options = {name: more.pop(name) for name in list(more) if name not in {"topic", "group"}}
    with within(SOON_S / BUSY):
        found = examine(
            ClientOptions(name_servers=tuple(name_server.split(";")), **options),
            clock=clock or FakeClock(),
            **more,
        )
    return [finding for finding in found if finding.verdict is not Verdict.GOOD]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    assert findings[0].advice
    return findings[0]


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2, "payments": 1}, brokers=("broker-a", "broker-b")) as cluster:
        yield cluster


def test_a_healthy_cluster_has_only_good_findings(mq):
    assert looked(mq.name_server, topic="orders") == []


def test_1_a_name_server_that_is_not_there(closed_port):
    found = only(looked(closed_port))
    assert found.verdict is Verdict.BAD
    assert closed_port in found.seen
    assert "host, port" in found.advice


def test_2_a_port_that_speaks_http():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        found = only(looked(f"127.0.0.1:{listener.getsockname()[1]}"))
        listener.shutdown(socket.SHUT_RDWR)
    assert found.verdict is Verdict.BAD
    assert "Is this a name server?" in found.seen


def test_3_one_of_two_name_servers_is_down(mq, closed_port):
    found = only(looked(f"{mq.name_server};{closed_port}"))
    assert found.subject == f"name server {closed_port}"


def test_4_an_advertised_address_that_cannot_be_reached(mq, closed_port):
    mq.advertise("broker-b", closed_port)
    found = only(looked(mq.name_server))
    assert found.subject == "broker broker-b, master"
    assert closed_port in found.seen
    assert "brokerIP1" in found.advice


def test_5_a_broker_that_hangs(mq):
    mq.inject(Silence(), on=RequestCode.GET_BROKER_RUNTIME_INFO, times=None, broker="broker-a")
    found = only(looked(mq.name_server, clock=SYSTEM_CLOCK))
    assert found.subject == "broker broker-a, master"


def test_6_no_broker_at_all(mq):
    mq.unregister("broker-a")
    mq.unregister("broker-b")
    found = only(looked(mq.name_server))
    assert (found.subject, found.verdict) == ("brokers", Verdict.BAD)


@pytest.mark.parametrize(
    ("given", "advice"),
    [({}, "ROCKETMQ_ACCESS_KEY"), ({"access_key": "u", "secret_key": "wrong"}, "check the key pair")],
)
def test_7_missing_and_wrong_credentials(given, advice):
    with MockCluster({"orders": 1}, credentials=Credentials("u", "s3cret")) as mq:
        found = only(looked(mq.name_server, **given))
        assert advice in found.advice
        assert "s3cret" not in found.seen + found.advice
        assert looked(mq.name_server, topic="orders", access_key="u", secret_key="s3cret") == []


def test_8_tls_on_one_side_only(mq, tmp_path):
    found = only(looked(mq.name_server, tls=True))
    assert "TLS is on" in found.advice
    server = Authority.create(tmp_path).issue("server")
    with MockCluster({"orders": 1}, tls=server.server_context()) as secured:
        assert "tls=true" in only(looked(secured.name_server)).advice


def test_9_a_misspelt_topic_and_one_that_is_missing(mq):
    assert only(looked(mq.name_server, topic="order")).advice == "did you mean orders?"
    assert "topic create" in only(looked(mq.name_server, topic="unheard-of")).advice


def test_10_a_group_that_nobody_knows_and_one_whose_messages_expired(mq):
    assert "no broker knows it" in only(looked(mq.name_server, group="billing")).seen
    with Client(mq.name_server) as client:
        queues = client.read_queues("payments")
        for _ in range(4):
            Producer(client).send(OutgoingMessage("payments", b"1"), queues[0])
        client.commit_offsets("billing", dict.fromkeys(queues, 0))
    mq.expire(queues[0], 3)
    found = only(looked(mq.name_server, group="billing", topic="payments"))
    assert "3 messages expired" in found.seen


def test_11_a_broker_that_hangs_hides_nothing_of_the_others(mq):
    with Client(mq.name_server) as client:
        queues = client.read_queues("orders")
        for queue in queues:
            Producer(client).send(OutgoingMessage("orders", b"1"), queue)
        client.commit_offsets("billing", dict.fromkeys(queues, 0))
    mq.inject(Silence(), on=None, times=None, broker="broker-b")
    found = examine(ClientOptions(name_servers=(mq.name_server,)), topic="orders", group="billing")
    seen = {finding.subject: finding for finding in found}
    assert seen["broker broker-b, master"].verdict is Verdict.BAD
    note = "without broker-b, which did not answer"
    assert seen["topic orders"].seen == f"4 queues, 2 messages, {note}"
    assert seen["group billing"].seen == f"2 messages behind on 1 topics, 0 consumers online, {note}"


def test_a_topic_that_one_broker_of_two_refuses_to_show(mq):
    """It ends a query, whatever the other broker answers."""
    mq.inject(refusal("Topic:orders"), on=RequestCode.GET_MAX_OFFSET, times=None, broker="broker-b")
    found = only(looked(mq.name_server, topic="orders", access_key="reader", secret_key="s"))
    assert found.verdict is Verdict.BAD
    assert "no permission to access Topic:orders" in found.seen
    assert "Sub and Get" in found.advice


def test_a_group_that_a_user_may_not_use_and_that_no_broker_has_yet(mq):
    mq.inject(refusal("Group:report"), on=RequestCode.GET_CONSUMER_CONNECTION_LIST, times=None)
    found = only(looked(mq.name_server, group="report", access_key="reader", secret_key="s"))
    assert found.verdict is Verdict.BAD
    assert "no permission to access Group:report" in found.seen
    assert "Sub and Get" in found.advice


def refusal(resource: str) -> Refuse:
    remark = f"User:reader has no permission to access {resource} from 127.0.0.1, no matched policies."
    return Refuse(ResponseCode.NO_PERMISSION, remark)


def test_12_a_name_server_that_hangs_hides_nothing_of_the_cluster(mq):
    with Client(mq.name_server) as client:
        client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
    with ScriptedPeer(lambda peer, frame: None) as hanging:
        servers = f"{hanging.addr};{mq.name_server}"
        found = only(looked(servers, topic="orders", group="billing", clock=SYSTEM_CLOCK))
    assert found.subject == f"name server {hanging.addr}"
    assert "did not answer" in found.seen


# --- this machine ---


def test_workers_with_an_interpreter_that_lacks_the_package(tmp_path):
    naked = tmp_path / "python"
    naked.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pyspark'\" >&2\nexit 1\n")
    naked.chmod(0o755)
    found = {f.subject: f for f in examine_machine({"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": str(naked)})}
    workers = found["Spark's workers"]
    assert workers.verdict is Verdict.BAD
    assert "DATA_SOURCE_NOT_FOUND" in workers.seen
    assert sys.executable in workers.advice


def test_data_sources_run_the_driver_s_interpreter_if_one_is_set(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_WORKER_TIMEOUT_S", 60)
    environ = {"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": sys.executable}
    found = {
        f.subject: f for f in examine_machine(environ | {"PYSPARK_DRIVER_PYTHON": str(tmp_path / "none")})
    }
    assert found["Spark's workers"].verdict is Verdict.GOOD
    assert found["Spark's data sources"].verdict is Verdict.BAD
    assert f"PYSPARK_DRIVER_PYTHON={sys.executable}" in found["Spark's data sources"].advice
    same = examine_machine(environ | {"PYSPARK_DRIVER_PYTHON": sys.executable})
    assert [f.verdict for f in same if f.subject.startswith("Spark's")] == [Verdict.GOOD]


def test_no_java_and_a_package_of_the_wrong_version(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "package_versions", lambda: dict.fromkeys(machine.PACKAGES) | {
        "pyspark": "3.5.1", "pyarrow": "18.0.0", "numpy": "2.0", "pandas": "3.0.0"
    })  # fmt: skip
    found = {f.subject: f for f in examine_machine({"PATH": str(tmp_path)})}
    assert found["Java"].verdict is Verdict.BAD
    assert "no Java found" in found["Java"].seen
    assert found["pyspark"].advice == "install another one: pip install 'pyspark>=4.0,<5'"
    assert found["pandas"].verdict is Verdict.BAD
    assert found["pyarrow"].verdict is Verdict.GOOD
    assert "is not there" in found["Spark's workers"].seen


def test_the_client_alone_needs_no_java(tmp_path, monkeypatch):
    versions = machine.package_versions() | {"pyspark": None, "pandas": None}
    monkeypatch.setattr(machine, "package_versions", lambda: versions)
    found = {f.subject: f.verdict for f in examine_machine({"PATH": str(tmp_path)})}
    assert found == {
        **dict.fromkeys(("Python", "pyarrow", "numpy"), Verdict.GOOD),
        **dict.fromkeys(("pyspark", "pandas", "Java"), Verdict.POOR),
    }
