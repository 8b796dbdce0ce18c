"""All benchmarks in order: a base case, then one factor at a time.

``python -m benchmarks.suite`` runs for up to an hour. Tables and plots go to ``benchmarks/results``, and a
summary of all of them to ``summary.md`` there. A failed case does not stop the others, but the exit code
reports it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from benchmarks.arguments import RESULTS

PEERS = "client,spark,java-pull,spark-kafka"
# Spark ends Python workers after an idle minute, and the next query has the cost of new ones. A cycle of
# rounds must take less than that, so the base case is split into parts.
CLIENTS = "drain,drain-binary,client,client-2p,java-pull,java-lite,spark,spark-kafka"
QUERIES = "spark,spark-default,spark-properties,spark-stream,spark-rare,spark-kafka"
PARSING = "spark,spark-json,spark-kafka,spark-kafka-json"


@dataclass(frozen=True, slots=True)
class Step:
    """One program of the suite. The arguments select the case."""

    module: str
    args: Sequence[str] = ()

    @property
    def command(self) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", f"benchmarks.{self.module}", *self.args]


def read(*args: str, contenders: str = PEERS, rounds: int = 3, name: str = "") -> Step:
    """A reading case."""
    named = ("--name", name) if name else ()
    plan = ("--rounds", str(rounds), "--time-limit", "600")
    return Step("read", ("--contenders", contenders, *plan, *named, *args))


FULL = (
    read(contenders=CLIENTS, rounds=5, name="clients"),
    read(contenders=QUERIES, rounds=5, name="queries"),
    read("--messages", "1000000", contenders=PARSING, name="json"),
    read("--body-bytes", "100"),
    read("--body-bytes", "16384", "--messages", "120000"),
    read("--compression", "zlib", "--messages", "1000000"),
    read("--queues", "64"),
    read(
        *("--broker-config", "maxTransferCountOnMessageInMemory=1000"),
        *("--broker-config", "maxTransferBytesOnMessageInMemory=4194304"),
    ),
    read("--cold", contenders="client,spark,java-pull", rounds=2),
    Step("scaling"),
    Step("write", ("--time-limit", "600")),
    Step("committed", ("--time-limit", "600")),
    Step("dstream"),
    Step("microbatch"),
    Step("latency"),
    Step("planning"),
    Step("footprint"),
    Step("footprint", ("--hard-limit",)),
    Step("streams_kafka"),
)
QUICK = (
    read(
        "--messages", "500000", "--time-limit", "420", contenders="drain,client,spark,java-pull,spark-kafka"
    ),
)


def main() -> None:
    """Run all steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the base case alone, smaller: a few minutes")
    args = parser.parse_args()
    console = Console()
    begin = time.monotonic()
    failed = []
    for step in QUICK if args.quick else FULL:
        console.rule(f"{(time.monotonic() - begin) / 60:.0f} min: {' '.join(step.command[2:])}")
        if subprocess.run(step.command, check=False).returncode:
            failed.append(" ".join(step.command[2:]))
    parts = [file.read_text(encoding="utf-8") for file in sorted(RESULTS.glob("*-*.md"))]
    (RESULTS / "summary.md").write_text("\n".join(parts), encoding="utf-8")
    console.print(f"wrote {RESULTS / 'summary.md'}")
    for line in failed:
        console.print(f"failed: {line}", style="red")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
