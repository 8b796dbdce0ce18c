"""The remoting port of a RocketMQ 5 proxy, in front of a mock cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.command import FLAG_RESPONSE, Command
from pyspark_rocketmq.remoting.frame import Frame, decode_frame, encode_frame

SERVED = frozenset({10, 310, 320, 36, 37, 370, 34, 35, 46, 11, 361, 15, 14, 30, 31, 29, 38, 203, 41, 42, 105})
"""The requests that 5.4.0's proxy registers (``RemotingProtocolServer``)."""

KEPT = frozenset({34, 35, 46})
"""Heartbeats, farewells and filters to check, of which brokers do not hear."""

WATER_MARK = 65_536
_SEND_BUFFER = 16_384
OF_PROXIES = {"TRACE_ON": "false", "MSG_REGION": ""}


def named_by(code: int) -> str:
    """Return which field names the broker to a proxy up to 5.3.2. Later ones read ``n`` of a batch, too."""
    return "n" if code == RequestCode.SEND_MESSAGE_V2 else "bname"


@dataclass(frozen=True)
class _Forwarded:
    """A request as it came in."""

    CODE: int
    values: Mapping[str, str]

    def fields(self, _: object) -> dict[str, str]:
        return dict(self.values)


class MockProxy:
    """A proxy in cluster mode, on loopback. As the real one, it drops answers that a full connection cannot
    take, never answers a request for a broker that it does not know, and keeps no lists.

    Parameters
    ----------
    name_server : str
        Of the cluster.
    """

    def __init__(self, name_server: str) -> None:
        self.dropped = 0
        self._upstream = Client(name_server)
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="mock-proxy")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mock-proxy", daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        serving = asyncio.start_server(self._serve, sock=self._listener)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()
        self._upstream.close()  # which ends the pulls that wait
        self._threads.shutdown()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers: set[asyncio.Task[None]] = set()
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    head = await reader.readexactly(4)
                    rest = await reader.readexactly(int.from_bytes(head, "big"))
                    answer = asyncio.create_task(self._answer(decode_frame(memoryview(head + rest)), writer))
                    answers.add(answer)
                    answer.add_done_callback(answers.discard)
        finally:
            writer.transport.abort()

    async def _answer(self, request: Frame, writer: asyncio.StreamWriter) -> None:
        work = self._loop.run_in_executor(self._threads, self._forward, request)
        if (answer := await work) is None:
            return
        command, body = answer
        if writer.transport.get_write_buffer_size() > WATER_MARK:
            self.dropped += 1
            return
        fields = {**command.fields, **OF_PROXIES}
        answered = replace(command, opaque=request.command.opaque, flag=FLAG_RESPONSE, fields=fields)
        writer.write(encode_frame(answered, body, limit=1 << 30))

    def _forward(self, request: Frame) -> tuple[Command, bytes] | None:
        code, fields = request.command.code, request.command.fields
        if code not in SERVED:
            remark = f" request type {code} not supported"
            return Command(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, opaque=0, remark=remark), b""
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            answer = self._ask(self._upstream.options.name_servers[0], request)
            return answer.command, self._with_own_address(bytes(answer.body))
        if code in KEPT:
            return Command(code=ResponseCode.SUCCESS, opaque=0), b""
        broker = self._upstream.find_broker(fields.get(named_by(code), ""))
        if broker is None or broker.master is None:
            return None
        answer = self._ask(broker.master, request)
        return answer.command, bytes(answer.body)

    def _ask(self, addr: str, request: Frame) -> Response:
        forwarded = _Forwarded(request.command.code, request.command.fields)
        connection = self._upstream.connection(addr)
        return connection.call(forwarded, bytes(request.body))  # type: ignore[arg-type]  # has what is used

    def _with_own_address(self, body: bytes) -> bytes:
        if not body:
            return body
        route = json.loads(body)
        for broker in route["brokerDatas"]:
            broker["brokerAddrs"] = {"0": self.addr}
        return json.dumps(route).encode()
