"""``python -m benchmarks.nexmark`` starts a broker and runs all queries: are they right, and how fast?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.nexmark.events import events
from benchmarks.nexmark.expected import EXPECTED
from benchmarks.nexmark.run import Result, job_text, public_job, run_query, send_events
from benchmarks.workers.spark import session
from pyspark_rocketmq.client import Client
from pyspark_rocketmq.devcluster import DevCluster


def main() -> int:
    """Run the queries; return 1 if one is not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--queries", default=",".join(EXPECTED), help="comma list; all by default")
    parser.add_argument(
        "--public", type=Path, help="folder with the queries of a checkout of the public Nexmark for Flink"
    )
    args = parser.parse_args()
    made = list(events(args.events))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    console = Console(width=140)
    results = []
    spark = session({"spark.sql.session.timeZone": "UTC"})
    try:
        with DevCluster() as cluster, Client(cluster.name_server) as client:
            send_events(client, made)
            for query in args.queries.split(","):
                text = public_job(args.public, query) if args.public else job_text(query)
                result = run_query(spark, client, cluster.name_server, query, text, made)
                console.print(_line(result))
                results.append(result)
    finally:
        spark.stop()
    console.print(_table(results, len(made)))
    return int(not all(result.right for result in results))


def _line(result: Result) -> str:
    if result.error is not None:
        return f"{result.query}: {result.error}"
    state = "right" if result.right else f"{result.missing.total()} missing, {result.extra.total()} too many"
    return f"{result.query}: {state}, {result.rows:,} rows, {result.seconds:.1f} s"


def _table(results: list[Result], count: int) -> Table:
    table = Table("query", "right", "rows", "seconds", "events/s")
    for result in results:
        rate = f"{count / result.seconds:,.0f}" if result.seconds else ""
        table.add_row(
            result.query, "yes" if result.right else "no", f"{result.rows:,}", f"{result.seconds:.1f}", rate
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
