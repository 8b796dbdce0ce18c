"""The machine of a simulated process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.network import Network
from tests.simulation.scheduler import Process, SimulatedCondition

from pyspark_rocketmq.client.net.byte_stream import ByteStream
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions

__all__ = ["SimulatedHost"]

_ADDRESS: Final = "10.9.0.1"
_PROCESS_ID: Final = 4711


class SimulatedHost:
    """What a client takes from its machine, for one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    def connect(self, addr: str, options: ConnectionOptions) -> ByteStream:
        """See ``Host.connect``."""
        return self._network.connect(self._process, addr, options)

    def condition(self) -> SimulatedCondition:
        """See ``Host.condition``."""
        return SimulatedCondition(self._network.scheduler)

    def address(self) -> str:
        """See ``Host.address``: always the same, for the sake of its length."""
        return _ADDRESS

    def process_id(self) -> int:
        """See ``Host.process_id``: always the same, for the sake of its length."""
        return _PROCESS_ID

    def random_bytes(self, count: int) -> bytes:
        """See ``Host.random_bytes``."""
        return self._network.ids.randbytes(count)

    def start(self, work: Callable[[], None], *, name: str) -> None:
        """See ``Host.start``."""
        self._network.scheduler.start(work, self._process, name)
