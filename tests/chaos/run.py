"""The whole of it, with figures: ``python -m tests.chaos.run --messages 1000000 --rounds 3``.

Every kind of fault on a mock cluster until so many messages have got through, then faults of the servers of a
real one, where Spark copies the messages to another topic meanwhile. Ends with another status than 0 if a
message was lost, read twice, or out of order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.cluster_chaos import chaos_cluster, disturb_cluster
from tests.support.mock_chaos import disturb
from tests.support.spark_copy import CopyFigures
from tests.support.workload import Figures

from pyspark_rocketmq.testing.session import local_session


def main() -> None:
    """Run both and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="of the real cluster's faults; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    runs = [disturb(given.messages, seed=given.seed)]
    copy = CopyFigures()
    print(f"--- mock cluster ---\n{runs[0]}", flush=True)
    runs.append(disturb(given.messages // 10, seed=given.seed, static=True))
    print(f"--- mock cluster, a static topic ---\n{runs[1]}", flush=True)
    if given.rounds:
        with chaos_cluster() as cluster, local_session() as spark, tempfile.TemporaryDirectory() as folder:
            figures, copy = disturb_cluster(cluster, spark, Path(folder), rounds=given.rounds)
        runs.append(figures)
        print(f"--- real cluster ---\n{figures}\n--- a Spark stream meanwhile ---\n{copy}", flush=True)
    print(f"--- together ---\n{_together(runs, copy)}", flush=True)
    sys.exit(0 if _clean(runs, copy) else 1)


def _clean(runs: list[Figures], copy: CopyFigures) -> bool:
    wrong = [run.lost + run.repeated_rows + run.disordered for run in runs]
    return sum(wrong) + copy.lost + copy.disordered == 0


def _together(runs: list[Figures], copy: CopyFigures) -> str:
    faults, kinds = sum(run.faults.total() for run in runs), sum(len(run.faults) for run in runs)
    sent = sum(run.sent for run in runs) + copy.copied
    return (
        f"faults injected {faults:,} of {kinds} kinds, messages sent {sent:,}, "
        f"lost {sum(run.lost for run in runs) + copy.lost}, "
        f"duplicated beyond the promise {sum(run.repeated_rows for run in runs)}, "
        f"longest stall {max(run.longest_stall_s for run in runs):.1f} s"
    )


if __name__ == "__main__":
    main()
