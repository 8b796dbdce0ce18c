"""Topics of an MQTT broker as a stream, and publishing results. Needs the extra ``mqtt`` (paho-mqtt).

MQTT has no offsets and delivers a message once. So messages are written to a journal, a small database on the
driver's machine, before they are acknowledged. A micro-batch is a range of the journal's numbers, so a
repeated batch has the same messages. Messages of finished batches are deleted from the journal.
"""

from __future__ import annotations

import itertools
import secrets
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.features import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark_rocketmq.spark.read.position_keeper import reader_for
from pyspark_rocketmq.streams.connectors.mqtt_journal import Journal

__all__ = ["MqttAddress", "MqttSource", "publish"]

_SCHEMA: Final = "topic string, payload binary, time timestamp"
_KEEP_ALIVE_S: Final = 30
_LOOP_S: Final = 0.2
_AGAIN_S: Final = 1.0
_PATIENCE_MS: Final = 30_000
_MAX_ROWS: Final = 10_000
_UNCONFIRMED: Final = 1_000
_TIME: Final = pa.timestamp("us", tz="UTC")
_SECURE: Final = frozenset({"ssl", "mqtts", "tls"})


@dataclass(frozen=True, slots=True)
class MqttAddress:
    """The address of an MQTT broker, and the client's credentials.

    Parameters
    ----------
    url : str
        ``tcp://host:1883``, or ``ssl://host:8883``.
    """

    url: str
    client_id: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"tcp", "mqtt", *_SECURE} or not parts.hostname or parts.password:
            raise OptionError("an MQTT URL is tcp://host:port or ssl://host:port; pass the user separately")
        if not self.client_id:
            raise OptionError("an MQTT client needs an id, by which the broker finds its session")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Return the connection that a data source's options configure."""
        names = {"url": "url", "clientid": "client_id", "username": "user", "password": "password"}
        names["cafile"] = "ca_file"
        given = {names[key.lower()]: value for key, value in options.items() if key.lower() in names}
        return cls(**given)

    def client(self, *, suffix: str = "", keep: bool) -> Any:
        """Return a paho client that is not connected yet. With ``keep`` the broker keeps its session."""
        from paho.mqtt.client import Client  # noqa: PLC0415 - an extra
        from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"{self.client_id}{suffix}",
            clean_session=not keep,
            manual_ack=keep,
        )
        if self.user is not None:
            client.username_pw_set(self.user, self.password)
        if urlsplit(self.url).scheme in _SECURE:
            client.tls_set(ca_certs=self.ca_file, cert_reqs=ssl.CERT_REQUIRED)
        return client

    def connect(self, client: Any) -> None:
        """Start to connect a client."""
        parts = urlsplit(self.url)
        port = parts.port or (8883 if parts.scheme in _SECURE else 1883)
        client.connect(parts.hostname, port, keepalive=_KEEP_ALIVE_S)


# --- the subscriber ---------------------------------------------------------------------------


class ArrivalClock:
    """A clock whose wall time never goes back: what arrives is late for the watermark of what came before.

    A machine's clock that is set back is ahead of the wall's from then on, and passes as fast.

    Parameters
    ----------
    clock : Clock
    since_ms : int
        A time that messages had before this process.
    """

    def __init__(self, clock: Clock, since_ms: int) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last_ms: float = since_ms
        self._at_s = clock.monotonic()

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._clock.monotonic()

    def now_ms(self) -> int:
        """See `Clock`. Not less than before."""
        with self._lock:
            now_s = self._clock.monotonic()
            self._last_ms = max(self._clock.now_ms(), self._last_ms + (now_s - self._at_s) * 1000)
            self._at_s = now_s
            return int(self._last_ms)

    def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        self._clock.sleep(seconds)


class Subscriber:
    """A thread that stores a broker's messages in a journal and then acknowledges them."""

    def __init__(self, address: MqttAddress, topic: str, file: Path, clock: Clock) -> None:
        self._address = address
        self._topic = topic
        self._file = file
        self._clock = clock
        self._waiting: list[Any] = []
        self._refused: str | None = None
        self._failed: RocketMQError | None = None
        self._away_since: Deadline | None = Deadline(clock, _PATIENCE_MS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{topic}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise an error if the journal failed, the broker rejects us, or was away for half a minute."""
        if self._failed is not None:
            raise self._failed
        away = self._away_since
        if self._refused is None and away is not None and away.expired:
            self._refused = "does not answer"
        if self._refused is not None:
            raise RocketMQError(
                f"the MQTT broker {self._refused}", url=self._address.url, client=self._address.client_id
            )

    def stop(self) -> None:
        """Stop the thread. The broker keeps messages that arrive from now on."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        client = self._address.client(keep=True)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = lambda _client, _data, message: self._waiting.append(message)
        connected = False
        journal: Journal | None = None
        try:
            journal = Journal(self._file)
            while not self._stop.is_set():
                try:
                    if not connected:
                        self._waiting.clear()  # not acknowledged: they are delivered again
                        self._address.connect(client)
                        connected = True
                    connected = client.loop(_LOOP_S) == 0
                    self._keep(client, journal)
                except OSError:
                    connected = False
                if not connected:
                    self._away_since = self._away_since or Deadline(self._clock, _PATIENCE_MS)
                    self._stop.wait(_AGAIN_S)
            client.disconnect()
        except RocketMQError as error:  # of the journal
            self._failed = error
        except Exception as error:  # noqa: BLE001 - a thread's outermost frame
            self._refused = f"cannot be read: {error}"
        finally:
            if journal is not None:
                journal.close()

    def _keep(self, client: Any, journal: Journal) -> None:
        messages, self._waiting = self._waiting, []
        if messages:
            now_ms = self._clock.now_ms()
            journal.append([(message.topic, bytes(message.payload), now_ms) for message in messages])
            for message in messages:
                client.ack(message.mid, message.qos)

    def _on_connect(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._refused = f"refuses the client: {reason}"
        else:
            self._away_since = None
            client.subscribe(self._topic, qos=1)

    def _on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            self._refused = f"refuses the topic {self._topic!r}"


# --- the source -------------------------------------------------------------------------------


@called_by_spark
class MqttSource(DataSource):
    """``format("rocketmq-mqtt")``.

    Options: url, clientId, topic, journal, username, password, caFile, heartbeatMs, maxRowsPerTrigger.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq-mqtt"

    def schema(self) -> str:
        """Return the columns."""
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader."""
        return reader_for(_Reader(dict(self.options), SYSTEM_CLOCK))


@dataclass(frozen=True, slots=True)
class _Rows(InputPartition):
    """The messages of a batch. It contains the data, because only the driver's machine has the journal."""

    rows: tuple[tuple[str | None, bytes | None, int], ...]


@called_by_spark
class _Reader(DataSourceStreamReader):
    """The stream reader. Offsets are ``{"n": last number, "beat": time of the last heartbeat}``."""

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._clock = clock
        self._journal: Journal | None = None
        self._subscriber: Subscriber | None = None
        self._arrival: ArrivalClock | None = None
        self._active_ms = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_journal": None, "_subscriber": None, "_arrival": None}

    def _open_journal(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(Path(self._options["journal"]))
        return self._journal

    def initialOffset(self) -> dict[str, int]:
        return {"n": self._open_journal().bounds()[0], "beat": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(int(self._options.get("maxrowspertrigger", _MAX_ROWS)))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        journal = self._open_journal()
        if self._arrival is None or self._subscriber is None:
            if start["n"] > journal.bounds()[1]:
                journal.begin_after(start["n"])
            address, file = MqttAddress.of(self._options), Path(self._options["journal"])
            self._arrival = ArrivalClock(self._clock, start["beat"])
            self._subscriber = Subscriber(address, self._options["topic"], file, self._arrival)
            self._active_ms = self._arrival.now_ms()
        self._subscriber.check()
        end = max(start["n"], journal.bounds()[1])
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["n"] + limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise OptionError("an MQTT source can be limited by rows only", limit=type(limit).__name__)
        now_ms = self._arrival.now_ms()
        every_ms = int(self._options.get("heartbeatms", 0))
        if end > start["n"]:
            self._active_ms = now_ms
        elif every_ms and now_ms - max(self._active_ms, start["beat"]) >= every_ms:
            return {"n": end, "beat": now_ms}
        return {"n": end, "beat": start["beat"]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        beat = [(None, None, end["beat"])] if end["beat"] != start["beat"] else []
        rows = self._open_journal().between(start["n"], end["n"])
        return [_Rows((*rows, *beat))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        topics, payloads, times = zip(*partition.rows, strict=True) if partition.rows else ((), (), ())
        columns = [
            pa.array(topics, pa.string()),
            pa.array(payloads, pa.binary()),
            pa.array([time_ms * 1000 for time_ms in times], _TIME),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["topic", "payload", "time"])

    def commit(self, end: dict[str, int]) -> None:
        self._open_journal().forget(end["n"])

    def stop(self) -> None:
        if self._subscriber is not None:
            self._subscriber.stop()


# --- the sink ---------------------------------------------------------------------------------


def publish(address: MqttAddress, topic: str) -> Callable[[Iterator[Any]], None]:
    """Return a function that publishes the first column of rows and waits for every acknowledgment."""

    def send(rows: Iterator[Any]) -> None:
        first = next(rows, None)
        if first is not None:
            _publish(address, topic, itertools.chain([first], rows))

    return send


def _publish(address: MqttAddress, topic: str, rows: Iterator[Any]) -> None:
    client = address.client(suffix=f"-{secrets.token_hex(4)}", keep=False)
    answer: list[Any] = []
    confirmed = threading.Semaphore(0)
    client.on_publish = lambda *_: confirmed.release()
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answer.append(reason)
    try:
        address.connect(client)
    except OSError as error:
        raise RocketMQError(f"the MQTT broker does not answer: {error}", url=address.url) from error
    client.loop_start()
    try:
        deadline = Deadline(SYSTEM_CLOCK, _PATIENCE_MS)
        while not answer and not deadline.expired:
            SYSTEM_CLOCK.sleep(0.01)
        if not answer or answer[0].is_failure:
            told = answer[0] if answer else "no answer"
            raise RocketMQError(f"the MQTT broker refuses the client: {told}", url=address.url)
        sent = 0
        for row in rows:
            client.publish(topic, row[0], qos=1)
            sent += 1
            if sent == _UNCONFIRMED:
                _wait(confirmed, sent, address, topic)
                sent = 0
        _wait(confirmed, sent, address, topic)
    finally:
        client.disconnect()
        client.loop_stop()


def _wait(confirmed: threading.Semaphore, sent: int, address: MqttAddress, topic: str) -> None:
    """Wait for acknowledgments. The client connects again, and publishes again what had none.

    Its receipts do not tell: one of a moment without a connection is an error, even when it is acknowledged.
    """
    deadline = Deadline(SYSTEM_CLOCK, _PATIENCE_MS)
    for _ in range(sent):
        if not confirmed.acquire(timeout=deadline.remaining_s):
            raise RocketMQError("the MQTT broker has not confirmed a message", url=address.url, topic=topic)
