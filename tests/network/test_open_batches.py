"""``tx list`` and ``tx abort`` for committed ranges: batches that were begun and never committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cli import CommandLine
from tests.support.committed_query import Query

from pyspark_rocketmq.client import Client, CommittedConsumer
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.testing import MockCluster
from pyspark_rocketmq.tools.open_batches import OpenBatch, find_open_batches, give_up


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2, "orders-commits": 1}) as cluster:
        yield cluster


@pytest.fixture
def cli(mq: MockCluster, capsys, monkeypatch) -> CommandLine:
    return CommandLine(capsys, monkeypatch, mq.name_server)


def committed(client: Client) -> list[str]:
    return sorted(message.body.decode() for message in CommittedConsumer("orders", client=client).read())


def test_a_batch_that_was_given_up_is_never_committed(
    mq: MockCluster, client: Client, cli: CommandLine
) -> None:
    dead, living = Query(mq.name_server, client, "dead"), Query(mq.name_server, client, "living")
    living.run(1, "a")
    parts = [dead.write(1, "b", "c"), dead.write(1, "d")]
    listed = cli("tx", "list", "--topic", "orders", "--json").json()
    assert [(each["query"], each["batch"]) for each in listed] == [("orders/dead", 1)]
    assert "orders/dead" in cli("tx", "list", "--topic", "orders").out
    asked = cli("tx", "abort", "orders", "orders/dead", "1").out
    assert "nothing was changed: give it up with --yes" in asked
    assert "given up" in cli("tx", "abort", "orders", "orders/dead", "1", "--yes").out
    assert cli("tx", "list", "--topic", "orders").out.strip() == "no open batches in orders"
    dead.commit(1, *parts)  # it was only frozen
    assert committed(client) == ["a"]
    living.run(2, "e")
    dead.run(2, "f")
    assert committed(client) == ["a", "e", "f"]


def test_only_open_batches_are_given_up(mq: MockCluster, client: Client, cli: CommandLine) -> None:
    query = Query(mq.name_server, client)
    query.run(1, "a")
    refused = cli("tx", "abort", "orders", "orders/query", "1", "--yes")
    assert (refused.code, "there is no such open batch: see tx list --topic" in refused.err) == (2, True)
    part = query.write(2, "b")
    (found,) = find_open_batches(client, "orders-commits")
    query.commit(2, part)
    assert not give_up(client, "orders-commits", found), "it was committed meanwhile"
    assert committed(client) == ["a", "b"]


def test_what_cannot_be_listed_is_said(client: Client, cli: CommandLine) -> None:
    for words in (["tx", "list"], ["tx", "list", "/tmp", "--topic", "orders"]):
        assert "give either a folder or --topic" in cli(*words).err
    assert "--commit-topic is that of --topic" in cli("tx", "list", "/tmp", "--commit-topic", "others").err
    assert "Create it once" in cli("tx", "list", "--topic", "orders", "--commit-topic", "others").err
    with pytest.raises(OptionError, match="another program wrote this batch"):
        give_up(client, "orders-commits", OpenBatch(owner="q", number=1, begun_at_ms=0))
