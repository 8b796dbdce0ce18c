"""MQTT without a broker: addresses, the journal, and what a batch is made of."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from tests.support.clocks import FakeClock, WrongClock

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, PlanError, RocketMQError
from pyspark_rocketmq.spark.features import ReadAllAvailable
from pyspark_rocketmq.streams import StreamBuilder
from pyspark_rocketmq.streams.connectors.mqtt import MqttTopicSource
from pyspark_rocketmq.streams.connectors.mqtt_journal import Journal
from pyspark_rocketmq.streams.connectors.mqtt_source import MqttAddress, Subscriber, _Reader


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "deep" / "j.db")
    yield journal
    journal.close()


def rows(begin, end):
    return [("t", f"m{n}".encode(), n) for n in range(begin, end)]


def test_a_batch_is_a_range_of_numbers_that_can_be_read_again(journal):
    assert journal.bounds() == (0, 0)
    journal.append(rows(1, 6))
    assert journal.bounds() == (0, 5)
    assert journal.between(1, 3) == journal.between(1, 3) == rows(2, 4)
    journal.forget(3)
    assert journal.bounds() == (3, 5)
    journal.forget(5)
    assert journal.bounds() == (5, 5), "numbers go on when all are finished"
    journal.append(rows(6, 7))
    assert journal.between(5, 6) == rows(6, 7)


def test_a_journal_that_was_lost_goes_on_where_the_checkpoint_is(journal):
    journal.begin_after(40)
    journal.append(rows(41, 43))
    assert journal.between(40, 42) == rows(41, 43)
    with pytest.raises(RocketMQError, match=r"missing with their journal.*first=39"):
        journal.between(38, 42)


def test_a_journal_outlives_its_process(tmp_path):
    for begin in (1, 11):
        journal = Journal(tmp_path / "j.db")
        journal.append(rows(begin, begin + 10))
        journal.close()
    journal = Journal(tmp_path / "j.db")
    assert journal.between(0, 20) == rows(1, 21)
    journal.close()


def test_a_full_disk_is_said_with_the_journal_s_file_and_loses_nothing(journal):
    journal.append(rows(1, 6))
    journal._database.execute("PRAGMA max_page_count = 4")
    with pytest.raises(RocketMQError, match=r"journal .*written: .* is full.*file=.*j\.db"):
        journal.append([("t", bytes(1 << 22), 6)])
    assert journal.between(*journal.bounds()) == rows(1, 6)
    journal._database.execute("PRAGMA max_page_count = 4000")
    journal.append(rows(6, 8))
    assert journal.between(*journal.bounds()) == rows(1, 8)


def test_a_journal_that_cannot_be_opened_is_not_taken_for_an_absent_broker(tmp_path):
    pytest.importorskip("paho.mqtt", reason="an extra")
    (tmp_path / "taken").touch()
    subscriber = Subscriber(
        MqttAddress("tcp://127.0.0.1:1", "c"), "t", tmp_path / "taken" / "j.db", SYSTEM_CLOCK
    )
    subscriber.stop()
    with pytest.raises(RocketMQError, match=r"journal .*written: .*file=.*taken"):
        subscriber.check()


@pytest.mark.parametrize("url", ["127.0.0.1:1883", "http://h:1", "tcp://u:hidden@h:1", "tcp://"])
def test_addresses_that_are_none(url):
    with pytest.raises(OptionError, match="tcp://host:port") as raised:
        MqttAddress(url, "c")
    assert "hidden" not in str(raised.value)


def test_an_address_shows_no_password():
    options = {"url": "ssl://h", "clientId": "c", "username": "u", "password": "hidden", "heartbeatMs": "1"}
    address = MqttAddress.of(options)
    assert (address.user, address.password) == ("u", "hidden")
    assert "hidden" not in repr(address)
    with pytest.raises(OptionError, match="needs an id"):
        MqttAddress("tcp://h", "")


def journal_of(job, topic, client="c"):
    source = StreamBuilder.dataStream("ns", job).fromMqtt("tcp://h:1", client, topic)
    (node, _) = source.toPrint().plan().nodes()
    return node.options["journal"]


def test_a_journal_is_of_one_job_and_topic():
    assert journal_of("a-b", "c") != journal_of("a", "b-c")
    assert journal_of("a", "b/c") != journal_of("a/b", "c")
    assert journal_of("a", "b") == journal_of("a", "b"), "after a restart, too"


def test_two_sources_of_a_job_do_not_share_a_journal():
    """Each would read the messages of both."""
    source = StreamBuilder.dataStream("ns", "p")
    one, other, third = (
        source.fromMqtt(f"tcp://plant-{n}:1", "c", "heat", journal=file)
        for n, file in enumerate((None, None, "/a/file"))
    )
    _check_journals(one.union(third).toPrint().plan())
    with pytest.raises(PlanError, match=r"two MQTT sources of a job have one journal.*journal='/a/file'"):
        _check_journals(one.union(other).toPrint().plan())


def test_two_sources_of_a_job_are_two_clients_of_their_broker():
    """A broker closes the connection of the first one when the second one connects, and so on."""
    source = StreamBuilder.dataStream("ns", "p")
    one, other, third = (
        source.fromMqtt("tcp://plant:1", client, topic)
        for client, topic in (("c", "heat"), ("c", "cold"), ("d", "damp"))
    )
    _check_journals(one.union(third).toPrint().plan())
    with pytest.raises(PlanError, match=r"two MQTT sources of a job have one client id.*client=c"):
        _check_journals(one.union(other).toPrint().plan())


def _check_journals(plan):
    for node in plan.nodes():
        if isinstance(node, MqttTopicSource):
            node._check_others(plan)


def test_a_clock_that_is_set_back_makes_no_message_late_and_stops_no_heartbeat(tmp_path, monkeypatch):
    monkeypatch.setattr(Subscriber, "_run", lambda self: None)
    passing = FakeClock()
    clock = WrongClock(base=passing)
    options = {"url": "tcp://127.0.0.1:1", "clientId": "c", "topic": "t", "heartbeatMs": "1000"}
    reader = _Reader({**options, "journal": str(tmp_path / "j.db")}, clock)
    client = SimpleNamespace(ack=lambda *_: None)
    message = SimpleNamespace(topic="t", payload=b"m", mid=1, qos=1)
    begin_ms = clock.now_ms()
    reached = reader.initialOffset()
    times = []
    for ahead_s in (0, -3_600, -3_600):
        clock.ahead_s = ahead_s
        passing.now_s += 1
        beat = reader.latestOffset(reached, ReadAllAvailable())
        times.append(beat["beat"])
        reader._subscriber._waiting.append(message)
        passing.now_s += 1
        reader._subscriber._keep(client, reader._open_journal())
        reached = reader.latestOffset(beat, ReadAllAvailable())
        times += [at for part in reader.partitions(beat, reached) for _, _, at in part.rows]
    assert times == [0, *(begin_ms + 1_000 * second for second in range(2, 7))]
    reader._clock = SYSTEM_CLOCK
    pickle.dumps(reader)  # as Spark sends it to the tasks
