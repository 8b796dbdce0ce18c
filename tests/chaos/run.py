"""The whole of it, with figures: ``python -m tests.chaos.run --messages 1000000 --rounds 3``.

Every kind of fault on a mock cluster until so many messages have got through, then faults of the servers of a
real one. Ends with another status than 0 if a message was lost, read twice, or out of order.
"""

from __future__ import annotations

import argparse
import sys

from tests.support.cluster_chaos import chaos_cluster, disturb_cluster
from tests.support.mock_chaos import disturb
from tests.support.workload import Figures


def _clean(figures: Figures) -> bool:
    return (figures.lost, figures.repeated_rows, figures.disordered) == (0, 0, 0)


def main() -> None:
    """Run both and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="of the real cluster's faults; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    runs = {"mock cluster": disturb(given.messages, seed=given.seed)}
    print(f"--- mock cluster ---\n{runs['mock cluster']}", flush=True)
    if given.rounds:
        with chaos_cluster() as cluster:
            runs["real cluster"] = disturb_cluster(cluster, rounds=given.rounds)
        print(f"--- real cluster ---\n{runs['real cluster']}", flush=True)
    sys.exit(0 if all(map(_clean, runs.values())) else 1)


if __name__ == "__main__":
    main()
