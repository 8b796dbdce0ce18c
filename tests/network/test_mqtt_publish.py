"""Publishing to an MQTT broker whose connections break."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from pyspark_rocketmq.streams.connectors.mqtt_source import MqttAddress, publish

CONNECT, PUBLISH = 1, 3


class Broker:
    """Confirms what is published, but closes its first connection when it has got some messages."""

    def __init__(self, *, first: int) -> None:
        self.payloads: list[bytes] = []
        self.broke = threading.Event()
        self._first = first
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Broker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, connection.makefile("rb") as stream:
                    self._answer(connection, stream)

    def _answer(self, connection, stream) -> None:
        while head := stream.read(1):
            content = stream.read(stream.read(1)[0])  # all are shorter than 128 bytes
            if head[0] >> 4 == CONNECT:
                connection.sendall(b"\x20\x02\x00\x00")
            if head[0] >> 4 == PUBLISH:
                number = 2 + int.from_bytes(content[:2])
                self.payloads.append(content[number + 2 :])
                if len(self.payloads) == self._first:
                    self.broke.set()
                    return
                connection.sendall(b"\x40\x02" + content[number : number + 2])


def test_a_connection_that_breaks_is_opened_again_and_all_messages_are_published():
    with Broker(first=3) as broker:

        def rows() -> Iterator[tuple[str]]:
            yield from ((f"m{n}",) for n in range(5))
            assert broker.broke.wait(20)
            yield from ((f"m{n}",) for n in range(5, 10))

        for _ in range(3):  # whether the client has noticed it when the next row comes is chance
            publish(MqttAddress(broker.url, "c"), "t")(rows())
        assert set(broker.payloads) == {f"m{n}".encode() for n in range(10)}
