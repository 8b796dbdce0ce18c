"""The common arguments of benchmarks in rounds."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.harness import Plan

RESULTS = Path(__file__).parent / "results"


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    contenders: str,
    messages: int = 2_000_000,
    rounds: int = 5,
    spare_rounds: int = 10,
    time_limit_s: float = 1800,
) -> None:
    """Add the arguments of the case, the contenders and the plan, with these defaults."""
    parser.add_argument("--messages", type=int, default=messages)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument(
        "--contenders", default=contenders, help="comma list" if contenders else "comma list; all by default"
    )
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--noise-limit", type=float, default=0.1, help="share of the CPU for other processes")
    parser.add_argument(
        "--spare-rounds", type=int, default=spare_rounds, help="noisy rounds that may be repeated"
    )
    parser.add_argument("--time-limit", type=float, default=time_limit_s, help="seconds for everything")
    parser.add_argument("--results", type=Path, default=RESULTS)


def plan_of(args: argparse.Namespace, spent_s: float) -> Plan:
    """Return the plan of a run that has already taken this many seconds."""
    return Plan(
        rounds=args.rounds,
        time_limit_s=args.time_limit - spent_s,
        noise_limit=args.noise_limit,
        spare_rounds=args.spare_rounds,
    )
