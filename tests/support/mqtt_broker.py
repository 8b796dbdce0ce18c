"""A real MQTT broker (amqtt) out of a wheel, in a process of its own, and a client of the tests."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paho.mqtt import client as paho
from pwdlib.hashers.argon2 import Argon2Hasher
from tests.support.wait import eventually

from pyspark_rocketmq.devcluster.system.ports import free_port

USER, PASSWORD = "sensor", "hidden-heat"


@dataclass(frozen=True)
class MqttBroker:
    """A running broker, of which only `USER` may ask."""

    port: int

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def client(self) -> Iterator[paho.Client]:
        """Connect a client, whose network thread ends with the block."""
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.username_pw_set(USER, PASSWORD)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            eventually(client.is_connected, 20, what="the broker's answer")
            yield client
        finally:
            client.disconnect()
            client.loop_stop()

    def publish(self, topic: str, payloads: list[str]) -> None:
        """Publish and wait until the broker has them."""
        with self.client() as client:
            for receipt in [client.publish(topic, payload, qos=1) for payload in payloads]:
                receipt.wait_for_publish(20)
                assert receipt.is_published()

    @contextlib.contextmanager
    def listening(self, topic: str) -> Iterator[list[tuple[str, str]]]:
        """Collect what is published from now on: topics and payloads."""
        found: list[tuple[str, str]] = []
        subscribed: list[Any] = []
        with self.client() as client:
            client.on_message = lambda _c, _d, message: found.append(
                (message.topic, message.payload.decode())
            )
            client.on_subscribe = lambda *_: subscribed.append(1)
            client.subscribe(topic, qos=1)
            eventually(lambda: subscribed, 20, what="the subscription")
            yield found


@contextlib.contextmanager
def mqtt_broker(folder: Path) -> Iterator[MqttBroker]:
    """Run a broker until the end of the block."""
    port = free_port(random.Random())
    (folder / "users").write_text(f"{USER}:{Argon2Hasher().hash(PASSWORD)}\n")
    settings = folder / "broker.yaml"
    settings.write_text(
        f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{port}\n"
        "plugins:\n  amqtt.plugins.authentication.FileAuthPlugin:\n"
        f"    password_file: {folder / 'users'}\n"
    )
    program = "import sys; from amqtt.scripts.broker_script import main; sys.argv[0] = 'amqtt'; main()"
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "-c", str(settings)], stdout=log, stderr=subprocess.STDOUT
        )
    try:

        def listens() -> bool:
            assert process.poll() is None, (folder / "broker.log").read_text()[-4_000:]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        eventually(listens, 60, what="the broker")
        yield MqttBroker(port)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
