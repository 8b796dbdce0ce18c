"""The options of writing."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from pathlib import Path

import pytest

import pyspark_rocketmq
from pyspark_rocketmq.client import ProducerOptions
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import SendStatus
from pyspark_rocketmq.options import Compressor, Guarantee, SinkOptions, parse_options
from pyspark_rocketmq.options.declare import CompatibilityWarning

COMMITTED = {"topic": "t", "deliveryGuarantee": "transactional", "transactionVisibility": "committed"}
STAGED = COMMITTED | {"transactionVisibility": "staged"}


def parse(**given: object) -> SinkOptions:
    return parse_options(SinkOptions, {"nameServer": "h:9876"} | given, where="writeStream", environ={})


def test_defaults_are_safe() -> None:
    options = parse()
    assert options.accept_statuses == {SendStatus.SEND_OK}
    assert (options.retries, options.send_timeout_ms, options.create_topic) == (3, 10_000, False)
    assert options.guarantee is Guarantee.AT_LEAST_ONCE
    assert not options.takes_dead_letters


def test_a_producer_has_the_sinks_defaults() -> None:
    """Both send a message again after a timeout, which is longer than the brokers' own timeouts."""
    producer, sink = ProducerOptions(), parse()
    assert (producer.send_timeout_ms, producer.retries, producer.accept_statuses) == (
        sink.send_timeout_ms,
        sink.retries,
        sink.accept_statuses,
    )


def test_the_names_of_other_connectors_are_understood() -> None:
    given = {
        "namesrvAddr": "h:1",
        "produceGroup": "result_group",
        "key": "k",
        "producer.retry.times": 5,
        "producer.timeout": 700,
        "messageGroup": "g",
    }
    options = parse_options(SinkOptions, given, where="write", environ={})
    assert options.client.name_servers == ("h:1",)
    assert (options.producer_group, options.keys, options.sharding_key) == ("result_group", "k", "g")
    assert (options.retries, options.send_timeout_ms) == (5, 700)
    assert parse(**{"producer.group": "p"}).producer_group == "p"


def test_what_spark_adds_is_ignored() -> None:
    parse(checkpointlocation="/c", queryname="q")
    parse(
        asyncProgressTrackingEnabled=True,
        asyncProgressTrackingCheckpointIntervalMs=500,
        _asyncProgressTrackingOverrideSinkSupportCheck=True,
    )


def test_statuses_sizes_and_choices() -> None:
    options = parse(
        acceptStatuses="SEND_OK, flush_slave_timeout",
        batchBytes="64k",
        compression="ZSTD",
        deliveryGuarantee="effectively-once",
        outageTimeout="5m",
    )
    assert options.accept_statuses == {SendStatus.SEND_OK, SendStatus.FLUSH_SLAVE_TIMEOUT}
    assert (options.batch_bytes, options.compression) == (65_536, Compressor.ZSTD)
    assert options.guarantee is Guarantee.EFFECTIVELY_ONCE
    assert options.outage_timeout_ms == 300_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"acceptStatuses": "FLUSH_DISK_TIMEOUT"}, "SEND_OK is missing"),
        ({"acceptStatuses": "SEND_OK,NO"}, "'NO' is no send status"),
        ({"topic": "a b"}, "not a topic name"),
        ({"sendsInFlight": 0}, "from 1 to 256"),
        ({"compression": "gzip"}, "one of none, zlib, lz4, zstd"),
        ({"deliveryGuarantee": "exactly-once"}, "one of at-least-once, effectively-once"),
        ({"batchBytes": "5m"}, "larger than maxMessageBytes"),
        ({"deliveryGuarantee": "transactional"}, "needs a folder to note its decisions in"),
        ({"deadLetterTopic": "d", "deadLetterPath": "/d"}, "one of deadLetterTopic and deadLetterPath"),
        ({"topic": "t", "deadLetterTopic": "t"}, "the topic itself"),
        ({"delayLevel": 19}, "from 1 to 18"),
        ({"tag": "t"}, "did you mean tags"),
        ({"transactionVisibility": "committed"}, "needs deliveryGuarantee=transactional"),
        (
            {"deliveryGuarantee": "transactional", "transactionVisibility": "committed"},
            "needs one topic for all rows",
        ),
        ({"commitTopic": "c"}, "commitTopic needs transactionVisibility=committed or staged"),
        ({"transactionVisibility": "staged"}, "needs deliveryGuarantee=transactional"),
        (
            {"deliveryGuarantee": "transactional", "transactionVisibility": "staged"},
            "transactionVisibility=staged needs one topic for all rows",
        ),
        (COMMITTED | {"stagingTopic": "s"}, "stagingTopic needs transactionVisibility=staged"),
        (STAGED | {"stagingTopic": "t"}, "stagingTopic is for staged rows only"),
        (STAGED | {"stagingTopic": "d", "deadLetterTopic": "d"}, "stagingTopic is for staged rows only"),
        (STAGED | {"stagingTopic": "s", "commitTopic": "s"}, "commitTopic is for commits only"),
        (COMMITTED | {"commitTopic": "t"}, "commitTopic is for commits only"),
        (COMMITTED | {"commitTopic": "d", "deadLetterTopic": "d"}, "commitTopic is for commits only"),
        (COMMITTED | {"deadLetterTopic": "t-commits"}, "t-commits has another use"),
        (STAGED | {"deadLetterTopic": "t-staging"}, "t-staging has another use"),
        (STAGED | {"deadLetterTopic": "t-staging-commits"}, "t-staging-commits has another use"),
        (STAGED | {"commitTopic": "t-staging"}, "t-staging has another use"),
        (COMMITTED | {"transactionLog": "/log"}, "transactionLog is for transactionVisibility=plain"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**given)


@pytest.mark.parametrize("name", ["transactionLog", "checkpointLocation"])
def test_a_transactional_write_notes_its_decisions_in_one_folder(name: str) -> None:
    assert parse(topic="t", deliveryGuarantee="transactional", **{name: "/f"}).transactions is not None


@pytest.mark.parametrize("given", [COMMITTED, STAGED])
def test_a_write_that_commits_ranges_needs_no_folder(given: dict[str, object]) -> None:
    assert (parse(**given).transactions, parse(**given).commits_ranges) == (None, True)


def test_a_batch_may_be_as_large_as_a_message() -> None:
    assert parse(batchBytes="1m", maxMessageBytes="1m").batch_bytes == 1 << 20


def test_a_job_id_means_nothing_to_a_stream() -> None:
    with pytest.warns(CompatibilityWarning, match="jobId"):
        parse(jobId="j")


def test_every_option_has_an_effect() -> None:
    """The other sink declares 24 options that nothing reads."""
    package = Path(pyspark_rocketmq.__file__).parent / "spark"  # a producer has options of the same names
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in package.rglob("*.py")]
    read = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("options")
    }
    parts = {  # of properties that are read
        "takes_dead_letters": ("dead_letter_topic", "dead_letter_path"),
        "transactions": ("transaction_log", "checkpoint_location"),
        "commits_ranges": ("transaction_visibility",),
    }
    assert parts.keys() <= read
    names = {field.name for field in dataclasses.fields(SinkOptions)}
    assert names - {"client", *itertools.chain(*parts.values())} - read == set()
