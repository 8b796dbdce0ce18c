"""``pyspark-rocketmq bench``: measure the client's throughput on this machine."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pyspark_rocketmq.cli.connect import Namesrv, Settings, connect
from pyspark_rocketmq.cli.printing import AsJson, examples, print_json, print_table, to_plain
from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.tools.bench import Measured

__all__ = ["EXAMPLES", "bench"]

EXAMPLES: Final = examples(
    "bench", "bench --messages 1000000 --body-bytes 200", "bench --topic orders --json"
)


def bench(
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only read, the newest messages of this topic.")
    ] = None,
    messages: Annotated[int, typer.Option(help="Maximum number of messages.", min=1)] = 100_000,
    body_bytes: Annotated[
        int | None, typer.Option(help="Body size in bytes of written messages. [1024]", min=1, max=1 << 20)
    ] = None,
    namesrv: Namesrv = None,
    option: Settings = None,
    json: AsJson = False,
) -> None:
    """Measure the throughput of writing and reading with one thread, without Spark.

    Creates a temporary topic and deletes it at the end. With --topic it only reads. Consumes nothing.
    """
    if topic is not None and body_bytes is not None:
        raise OptionError("--topic only reads: remove --body-bytes")
    with connect(namesrv, option) as client:
        if topic is not None:
            seen = [_read(client, topic, messages)]
        else:
            with _own_topic(client) as name:
                seen = [_write(client, name, messages, body_bytes or 1024), _read(client, name, messages)]
    if json:
        print_json([to_plain(each) | {"messagesPerSecond": round(each.messages_per_second)} for each in seen])
        return
    print_table(
        ("", "Messages", "Seconds", "Messages/s", "MiB/s", "CPU µs/message"),
        [
            (
                each.what,
                each.messages,
                f"{each.seconds:.2f}",
                round(each.messages_per_second),
                f"{each.mebibytes_per_second:.1f}",
                f"{each.cpu_us_per_message:.2f}",
            )
            for each in seen
        ],
    )


@contextlib.contextmanager
def _own_topic(client: Client) -> Iterator[str]:
    from pyspark_rocketmq.client.admin import Admin

    admin, name = Admin(client), f"bench-{secrets.token_hex(4)}"
    admin.create_topic(name, queues=4)
    try:
        yield name
    finally:
        admin.delete_topic(name)


def _write(client: Client, topic: str, messages: int, body_bytes: int) -> Measured:
    from pyspark_rocketmq.cli.progress import progress
    from pyspark_rocketmq.tools.bench import await_visible, measure_writing

    with progress("writing", total=messages) as done:
        seen = measure_writing(client, topic, messages=messages, body_bytes=body_bytes, done=done)
    await_visible(client, topic, messages)
    return seen


def _read(client: Client, topic: str, messages: int) -> Measured:
    from pyspark_rocketmq.cli.progress import progress
    from pyspark_rocketmq.tools.bench import measure_reading

    with progress("reading", total=messages) as done:
        return measure_reading(client, topic, messages=messages, done=done)
