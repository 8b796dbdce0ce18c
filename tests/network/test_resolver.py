"""The resolver answers brokers that ask about half messages, whatever goes wrong meanwhile."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.scripted_peer import Peer, answer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.model import TopicRoute
from pyspark_rocketmq.record.message import encode_message
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import Frame, encode_frame
from pyspark_rocketmq.spark import TransactionResolver
from pyspark_rocketmq.spark.write.transaction_checker import TransactionChecks
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog, TransactionName

NAME = TransactionName("query", 7)


def resolver(cluster: ScriptedCluster, log: Path) -> TransactionResolver:
    return TransactionResolver(
        nameServer=cluster.name_server,
        topic="orders",
        deliveryGuarantee="transactional",
        transactionLog=str(log),
    )


@pytest.mark.parametrize("trouble", [OSError("the disk is away"), KeyError()], ids=["OSError", "bug"])
def test_the_resolver_outlives_a_log_that_cannot_be_read(
    trouble: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record = encode_message(
        topic="orders", queue_id=0, body=b"left", properties={"transaction": str(NAME), "UNIQ_KEY": "A" * 32}
    )
    check = Command(
        code=RequestCode.CHECK_TRANSACTION_STATE,
        opaque=1,
        fields={"tranStateTableOffset": "3", "commitLogOffset": "5", "msgId": "A" * 32},
    )
    rolled_back: list[Frame] = []
    TransactionLog(f"{tmp_path}").finish(NAME)
    newest_done = TransactionLog.newest_done
    troubles = [trouble]

    def read(log: TransactionLog, owner: str) -> int | None:
        if troubles:
            raise troubles.pop()
        return newest_done(log, owner)

    def script(peer: Peer, frame: Frame, name: str) -> None:
        del name
        if frame.command.code == RequestCode.HEART_BEAT:
            peer.send(answer(frame))
            for _ in range(2):
                peer.send(encode_frame(check, record))
        elif frame.command.code == RequestCode.END_TRANSACTION:
            rolled_back.append(frame)

    monkeypatch.setattr(TransactionLog, "newest_done", read)
    monkeypatch.setattr("pyspark_rocketmq.spark.write.transaction_checker._BEAT_S", 0.1)
    with (
        caplog.at_level(logging.INFO),
        ScriptedCluster(script) as cluster,
        resolver(cluster, tmp_path),
    ):
        eventually(lambda: rolled_back, 20, what="a rollback after the trouble")
    assert not troubles
    assert "transactions wait to be resolved" in caplog.text


def test_a_broker_that_refuses_the_resolver_keeps_it_from_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeats: list[str] = []

    def script(peer: Peer, frame: Frame, name: str) -> None:
        if frame.command.code == RequestCode.HEART_BEAT:
            refuses = name == "broker-a"
            peer.send(answer(frame, code=ResponseCode.NO_PERMISSION if refuses else ResponseCode.SUCCESS))
            heartbeats.append(name)

    with (
        caplog.at_level(logging.INFO),
        ScriptedCluster(script, brokers=("broker-a", "broker-b")) as cluster,
        resolver(cluster, tmp_path),
    ):
        both = {"broker-a", "broker-b"}
        eventually(lambda: both <= set(heartbeats), 20, what="a heartbeat at each broker")
        refusal = "a broker cannot ask about transactions now"
        eventually(lambda: refusal in caplog.text, 20, what="a log of the refusal")
    assert "Traceback" not in caplog.text


def test_a_connection_that_ended_is_not_polled_while_no_route_has_its_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll of it returns at once: the thread would do nothing else."""
    served_route, heartbeats, pauses = Client.served_route, list[str](), list[float]()

    def script(peer: Peer, frame: Frame, name: str) -> None:
        if frame.command.code == RequestCode.HEART_BEAT:
            peer.send(answer(frame))
            heartbeats.append(name)
            peer.hang_up()

    def find(client: Client, topic: str) -> TopicRoute:
        route = served_route(client, topic)
        return replace(route, brokers=()) if heartbeats else route

    def pause(checks: TransactionChecks, seconds: float) -> None:
        pauses.append(seconds)
        _pause(checks, seconds)

    _pause = TransactionChecks._pause
    monkeypatch.setattr(Client, "served_route", find)
    monkeypatch.setattr(TransactionChecks, "_pause", pause)
    with (
        ScriptedCluster(script) as cluster,
        resolver(cluster, tmp_path),
    ):
        eventually(lambda: pauses, 20, what="a pause until a route has the broker again")
    assert heartbeats == ["broker-a"]
