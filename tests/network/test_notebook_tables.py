from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import pytest
from tests.support.query_logs import QUERY, LogFile, progress
from tests.support.wait import within

from pyspark_rocketmq import notebook
from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.testing import MockBroker, MockCluster


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 2, "payments": 1}) as broker:
        for number in range(6):
            broker.send(OutgoingMessage("orders", str(number).encode()), broker.queue("orders", number % 2))
        with Client(broker.name_server) as client:
            queues = client.read_queues("orders")
            client.commit_offsets("billing", {queues[0]: 2})
        yield broker


def test_topics(mq):
    shown = notebook.topics(mq.name_server)
    assert shown.rows == [("orders", "broker-a", 2, 6), ("payments", "broker-a", 1, 0)]
    assert repr(shown).splitlines() == [
        "2 topics",
        "topic     brokers   queues  messages",
        "orders    broker-a  2       6",
        "payments  broker-a  1       0",
    ]
    assert "<td>orders</td>" in shown._repr_html_()


def test_lag_and_offsets(mq):
    lag = notebook.lag(mq.name_server, "billing")
    assert lag.title == "billing is 4 messages behind"
    assert lag.rows == [("orders", "broker-a:0", 2, 3, 1), ("orders", "broker-a:1", None, 3, 3)]
    offsets = notebook.offsets(mq.name_server, "billing", "orders")
    assert offsets.rows == [("orders", "broker-a:0", 0, 2, 3), ("orders", "broker-a:1", 0, None, 3)]
    with pytest.raises(RocketMQError, match="committed no offset"):
        notebook.lag(mq.name_server, "nobody")


def test_the_lag_at_the_other_brokers_is_shown_while_one_is_away():
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"x"), queue)
        with Client(mq.name_server) as client:
            client.commit_offsets("billing", dict.fromkeys(client.read_queues("orders"), 0))
        mq.stop_broker("broker-b", unregister=False)
        with within(7):
            lag = notebook.lag(mq.name_server, "billing")
        assert lag.title == "billing is 1 messages behind, without broker-b, which did not answer"
        assert lag.rows == [("orders", "broker-a:0", 0, 1, 1)]
        mq.start_broker("broker-b")
        assert notebook.lag(mq.name_server, "billing").title == "billing is 2 messages behind"


def test_what_came_from_elsewhere_is_text_not_html():
    shown = notebook.Shown("<i>", ("<b>",), [("<script>",), (b"\xff<",)])
    html = shown._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<i>" not in html


def test_plots(tmp_path):
    mpl.use("agg")
    log = LogFile(tmp_path)
    log.write("started", 1, queryId=QUERY, name="revenue")
    for batch in range(5):
        log.write("progress", 1_000 * batch, progress=progress(batch, read=1, newest=2, queues=2))
    lag = notebook.plot_lag(tmp_path, "revenue")
    assert [line.get_label() for line in lag.lines] == ["orders broker-a:0", "orders broker-a:1"]
    assert list(lag.lines[1].get_ydata()) == [26] * 5
    rates = notebook.plot_rates(tmp_path, ax=lag.figure.add_subplot())
    assert [line.get_label() for line in rates.lines] == ["in", "processed"]
    mpl.pyplot.close(lag.figure)
    with pytest.raises(OptionError, match="it has revenue"):
        notebook.plot_lag(tmp_path, "other")


def test_the_newest_run_is_plotted_also_beside_failed_ones(tmp_path):
    mpl.use("agg")
    for number, query in enumerate(("a", "b", "c")):
        log = LogFile(tmp_path, f"run-{query}")
        log.write("started", 1_000 * number, queryId=query, name="other" if query == "c" else "revenue")
        log.write("progress", 1_000 * number + 1, progress=progress(0, read=1, newest=2, queues=number + 1))
        if query == "a":
            log.write("terminated", 2, queryId=query, failed=True, reason="it broke")
    assert len(notebook.plot_lag(tmp_path).lines) == 3
    assert len(notebook.plot_lag(tmp_path, "revenue").lines) == 2
    assert len(notebook.plot_lag(tmp_path, "a").lines) == 1
    mpl.pyplot.close("all")
