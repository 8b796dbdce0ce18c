from __future__ import annotations

import pytest
from tests.support.example_process import ExampleProcess
from tests.support.stored_orders import Results
from tests.support.wait import eventually

pytestmark = pytest.mark.needs("programs")


def test_the_example_of_ones_own_consumer_prints_what_is_sent(mq, send, topic, tmp_path):
    name = topic(queues=2)
    send(name, 6)
    example = ExampleProcess("dstream_own_consumer", [mq.name_server, name], tmp_path / "example.log")
    example.start()
    try:
        eventually(
            lambda: example.check() or all(f"{name} {n}\n" in example.printed() for n in range(6)),
            90,
            what="six printed messages",
        )
    finally:
        example.kill_driver()


def test_the_direct_half_of_the_receivers_example_stores_what_is_sent(mq, send, topic, tmp_path):
    name = topic(queues=2)
    send(name, 6)
    database = f"{tmp_path}/results.db"
    args = ["direct", mq.name_server, name, database, f"file://{tmp_path}/checkpoint"]
    example, found = (
        ExampleProcess("dstream_receivers", args, tmp_path / "example.log"),
        Results(f"sqlite:///{database}"),
    )
    example.start()
    try:
        eventually(
            lambda: example.check() or found.bodies() == {f"{name} {n}": 1 for n in range(6)},
            90,
            what="six rows",
        )
    finally:
        example.kill_driver()
        found.close()
