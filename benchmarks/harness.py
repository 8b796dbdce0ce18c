"""Rounds of several contenders, in turn in one run, so that all of them have the same conditions.

Absolute rates vary by a factor of two with the machine's other load: only ratios within one run count. A
round is repeated if other processes used too much CPU, a limited number of times. Repeats, and noisy rounds
that had to be kept, are counted and reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmarks.contender import Contender, Team, WorkerError
from benchmarks.processes import KINDS, Kind, Meter, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run.

    Parameters
    ----------
    rounds : int
        Rounds per contender, after its warm-up.
    time_limit_s : float
        For the whole run: no cycle of rounds starts that would not end in time.
    noise_limit : float
        The share of the machine's CPU that other processes may use during a round.
    spare_rounds : int
        How many noisy rounds may be repeated, over all contenders.
    """

    rounds: int = 5
    time_limit_s: float = 1800
    noise_limit: float = 0.1
    spare_rounds: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of one contender, with its rates and costs."""

    contender: str
    number: int
    messages: int
    bytes: int
    wall_s: float
    cpu_s: Mapping[Kind, float]
    peak_rss: Mapping[Kind, int]
    other_cpu_share: float
    stolen_share: float
    noisy: bool
    repeated: bool = False
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.wall_s

    def cpu_per_million(self, *kinds: Kind) -> float:
        """CPU seconds of these kinds of processes per million messages."""
        return sum(self.cpu_s.get(kind, 0.0) for kind in kinds) / self.messages * 1e6


@dataclass(slots=True)
class Results:
    """All rounds of a run, including warm-ups and repeated rounds."""

    warm_ups: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    def of(self, contender: str) -> list[Round]:
        """Return the counted rounds."""
        return [each for each in self.rounds if each.contender == contender and not each.repeated]

    def median(self, contender: str, figure: Callable[[Round], float]) -> float:
        """Return the median of a figure over the counted rounds."""
        return statistics.median(figure(each) for each in self.of(contender))

    def as_json(self) -> dict[str, object]:
        """Return all results."""
        return {
            "warm_ups": [asdict(each) for each in self.warm_ups],
            "rounds": [asdict(each) for each in self.rounds],
        }


def run(
    contenders: Sequence[Contender],
    plan: Plan,
    *,
    broker_pids: Callable[[], Sequence[int]],
    expected: int,
    log_dir: Path,
    say: Callable[[str], None],
    before_round: Callable[[], None] = lambda: None,
) -> Results:
    """Start all contenders, warm them up, and take rounds in turn.

    Parameters
    ----------
    broker_pids : Callable
        The brokers' process ids.
    expected : int
        The number of messages that a round must read. Any other number ends the run with an error.
    log_dir : Path
        Folder for the contenders' output.
    say : Callable
        Called with progress messages.
    before_round : Callable
        Called before each round, not measured.
    """
    deadline = time.monotonic() + plan.time_limit_s
    results = Results()
    with ExitStack() as stack:
        teams = []
        for contender in contenders:
            say(f"starting {contender.name}")
            left = deadline - time.monotonic()
            teams.append(stack.enter_context(Team(contender, log_dir, start_timeout_s=min(180, left))))
        taker = _Taker(plan, broker_pids, expected, deadline, before_round)
        for team in teams:
            for number in range(team.contender.warm_ups):
                warm_up = taker.take(team, number)
                results.warm_ups.append(warm_up)
                say(f"warm-up {_line(warm_up)}")
        spare = plan.spare_rounds
        longest_cycle = 0.0
        for number in range(plan.rounds):
            begin = time.monotonic()
            if begin + longest_cycle > deadline:
                say(f"the time is up after {number} of {plan.rounds} rounds")
                break
            # No contender is always first, or always after the same one.
            turn = teams[number % len(teams) :] + teams[: number % len(teams)]
            try:
                for team in turn:
                    taken = taker.take(team, number)
                    while taken.noisy and spare > 0:
                        spare -= 1
                        results.rounds.append(_repeated(taken))
                        say(f"noisy, again: {_line(taken)}")
                        taken = taker.take(team, number)
                    results.rounds.append(taken)
                    say(_line(taken))
            except WorkerError:
                if not number or time.monotonic() < deadline:
                    raise
                say(f"the time is up within round {number + 1} of {plan.rounds}")
                break
            longest_cycle = max(longest_cycle, time.monotonic() - begin)
    return results


@dataclass(frozen=True, slots=True)
class _Taker:
    plan: Plan
    broker_pids: Callable[[], Sequence[int]]
    expected: int
    deadline: float
    before_round: Callable[[], None]

    def take(self, team: Team, number: int) -> Round:
        """Run one round of one contender and measure it."""
        self.before_round()
        roots: dict[int, Kind] = dict.fromkeys(team.pids, "client")
        roots |= dict.fromkeys(self.broker_pids(), "broker")
        meter = Meter(roots)
        begin = time.perf_counter()
        answers = team.round(self.deadline - time.monotonic())
        wall_s = time.perf_counter() - begin
        usage = meter.stop()
        messages = sum(answer["messages"] for answer in answers)
        wanted = self.expected * team.contender.keeps
        if messages != wanted and (wanted == self.expected or not wanted / 2 < messages < wanted * 2):
            raise AssertionError(f"{team.contender.name} read {messages} messages of {wanted:.0f}")
        return _round(
            team.contender.name, number, self.expected, answers, wall_s, usage, self.plan.noise_limit
        )


def _round(
    name: str,
    number: int,
    messages: int,
    answers: Sequence[Mapping[str, object]],
    wall_s: float,
    usage: Usage,
    noise_limit: float,
) -> Round:
    capacity = wall_s * (psutil.cpu_count() or 1)
    share = usage.other_cpu_s / capacity
    extra = {
        key: [answer.get(key) for answer in answers] for key in answers[0] if key not in {"messages", "bytes"}
    }
    return Round(
        contender=name,
        number=number,
        messages=messages,
        bytes=sum(int(str(answer["bytes"])) for answer in answers),
        wall_s=wall_s,
        cpu_s={kind: usage.cpu_s[kind] for kind in KINDS if kind in usage.cpu_s},
        peak_rss=usage.peak_rss,
        other_cpu_share=share,
        stolen_share=usage.stolen_s / capacity,
        noisy=share > noise_limit,
        extra=extra,
    )


def _repeated(taken: Round) -> Round:
    return Round(**{**asdict(taken), "repeated": True})


def _line(taken: Round) -> str:
    return (
        f"{taken.contender:<12} {taken.wall_s:6.2f} s  {taken.rate / 1e3:6.1f} k msg/s"
        f"  CPU s/M: {taken.cpu_per_million('client', 'jvm', 'python'):5.2f}"
        f" + broker {taken.cpu_per_million('broker'):5.2f}  others {taken.other_cpu_share:4.0%}"
    )
