"""Lives in virtual time: nothing is lost, and what would lose something is found."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from tests.simulation.cluster import Cluster
from tests.simulation.dead_letters import DeadLetters
from tests.simulation.drawing import draw_plan
from tests.simulation.group import GroupPlan
from tests.simulation.history import History, Row
from tests.simulation.judges import JUDGES, judge
from tests.simulation.life import live
from tests.simulation.mistakes import PLANTS, Plant
from tests.simulation.network import Habits, Network
from tests.simulation.plan import Plan
from tests.simulation.plants import FOUND_BY, apart, check, live_again
from tests.simulation.scenarios import FOLDER, load
from tests.simulation.scene import Fault
from tests.simulation.scheduler import Process, Scheduler

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.host import SYSTEM_HOST
from pyspark_rocketmq.model import MessageQueue, OutgoingMessage
from pyspark_rocketmq.spark import filesystem
from pyspark_rocketmq.testing.log import PullLimits

A = ("orders", "broker-a", 0)
LIVES = 500


def run(module: str, *arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run one of the simulation's programs: the order of sets is fixed only in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.simulation.{module}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=3_600,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.timeout(1_800)
def test_lives_in_which_everything_goes_wrong_lose_nothing() -> None:
    done = run("run", "--seeds", str(LIVES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{LIVES:,} lives" in done.stdout
    happened = {line.strip().partition("  ")[2] for line in done.stdout.splitlines()}
    assert {
        "batch run again after a restart",
        "query killed: written",
        "sink killed: tasks done",
        "sink: batch written again",
        "executor killed",
        "a partition",
        "connections become half-open",
        "retention deletes messages",
        "the whole cluster is killed",
    } <= happened, "the world does not do what it should"


def test_a_seed_is_one_life() -> None:
    first, second = (run("run", "--show", "7", hash_seed=str(number)) for number in (1, 2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "virtual seconds; history " in first.stdout


SINKS = {
    "plain": lambda plan: plan.sink is not None and not plan.sink.transactional and not plan.sinks,
    "transactional": lambda plan: plan.sink is not None and plan.sink.transactional,
    "committed": lambda plan: plan.sinks and not plan.staged,
    "staged": lambda plan: plan.staged,
}


@pytest.mark.parametrize("kind", SINKS)
def test_nothing_in_a_life_comes_from_the_machine(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a seed would not be one life: time, threads and random bytes come from the simulated host."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a life uses the machine")

    for machine in (SYSTEM_HOST, SYSTEM_CLOCK):
        for name in [name for name in vars(type(machine)) if not name.startswith("_")]:
            monkeypatch.setattr(type(machine), name, refuse)
    # The name that a file has until it is complete.
    monkeypatch.setattr(filesystem, "uuid", SimpleNamespace(uuid4=uuid.uuid4))
    for module, name in ((uuid, "uuid4"), (secrets, "token_bytes"), (secrets, "randbits")):
        monkeypatch.setattr(module, name, refuse)
    seed = next(seed for seed in range(2_000) if SINKS[kind](draw_plan(seed)))
    assert live(draw_plan(seed)).wrong == {}


FOUND_AGAIN = (
    "what the socket did not take is forgotten",
    "name servers that know no broker make a topic missing",
    "an answer counts up to where its pull was meant to end",
    "a batch begins one message too early",
    "a failed send counts as acknowledged",
    "a task does not wait for its last answers",
)


def test_planted_mistakes_are_found() -> None:
    names = [each.what for each in PLANTS]
    done = run("plants", *(str(names.index(what)) for what in FOUND_AGAIN), "--seeds", "60")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(FOUND_AGAIN)} of {len(FOUND_AGAIN)} found" in done.stdout


def test_a_life_in_which_a_mistake_is_found_is_shrunk_and_kept(tmp_path: Path) -> None:
    what = "an answer counts up to where its pull was meant to end"
    (number,) = (number for number, each in enumerate(PLANTS) if each.what == what)
    done = run("plants", str(number), "--seeds", "60", "--shrink", str(tmp_path), "--lives", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = tmp_path.glob("*.json")
    scenario = load(kept)
    original = draw_plan(scenario.seed)
    assert len(scenario.plan.faults) <= len(original.faults)
    assert scenario.plan.accidents is not None
    assert "shrunk from" in done.stdout
    assert any(name in done.stdout for name in scenario.judges)
    alone = run("run", "--scenario", str(kept))
    assert alone.returncode == 0, "nothing is wrong without the mistake: " + alone.stdout


@pytest.mark.parametrize("mistake", PLANTS, ids=lambda mistake: mistake.what)
def test_the_code_has_the_piece_that_a_planted_mistake_replaces(mistake: Plant) -> None:
    check(mistake)


def test_each_planted_mistake_was_found() -> None:
    assert json.loads(FOUND_BY.read_text()).keys() == {mistake.what for mistake in PLANTS}


SCENARIOS = tuple(sorted(FOLDER.glob("*.json")))


def test_what_went_wrong_once_is_right() -> None:
    done = run("run", "--scenario", *map(str, SCENARIOS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(load(path).sentence in done.stdout for path in SCENARIOS)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_what_went_wrong_once_still_does_without_its_repair(path: Path) -> None:
    scenario = load(path)
    (mistake,) = (each for each in PLANTS if each.what == scenario.plant)
    with apart() as pool:
        assert set(scenario.judges) & set(pool.submit(live_again, mistake, path).result(300))


@pytest.mark.needs("lives")
@pytest.mark.timeout(1_800)
def test_no_history_depends_on_the_order_of_sets() -> None:
    def histories(hash_seed: int) -> list[str]:
        done = run("run", "--seeds", "60", "--histories", hash_seed=str(hash_seed))
        return sorted(line for line in done.stdout.splitlines() if ": history " in line)

    first = histories(0)
    assert len(first) == 60
    assert histories(1) == histories(2) == first


@pytest.mark.needs("lives")
@pytest.mark.timeout(3_600)
def test_every_planted_mistake_is_found() -> None:
    done = run("plants", "--seeds", "2000")
    assert done.returncode == 0, done.stdout + done.stderr


def history() -> History:
    """What a life without any mistake leaves."""
    stored = {(*A, offset): b"writer-0-0:%d" % offset for offset in range(4)}
    rows = [Row(place, body) for place, body in stored.items()]
    return History(
        stored=stored,
        acknowledged={"writer-0-0": {0, 1, 2, 3}},
        batches={0: rows[:2], 1: rows[2:]},
        read=set(stored),
        sent=set(stored.values()),
        queues=(MessageQueue(*A),),
    )


def _changed(name: str) -> dict[str, object]:
    """Return what is different in a history in which one thing is wrong."""
    (first, second), (third, last) = history().batches.values()
    elsewhere = Row(("orders", "broker-a", 1, 0), b"sink-0.0-ann:0")
    missing = DeadLetters()
    missing.due.add("sink-0.0-any:1")
    swapped = {"batches": {0: [third, last], 1: [first, second]}}
    shortened = {
        "batches": {0: [first, second], 1: [third]},
        "read": {first.place, second.place, third.place},
    }
    changes: dict[str, dict[str, object]] = {
        "lost": shortened,
        "passed over": shortened
        | {"expired": {last.place}, "strict": True, "finished": {MessageQueue(*A): last.place[3] + 1}},
        "repeated": {"batches": {0: [first, second], 1: [third, last, last]}},
        "phantom": {"batches": {0: [first, second], 1: [third, Row(last.place, b"writer-0-0:9")]}},
        "reordered": swapped,
        "disordered": {"stored": {first.place: last.body, second.place: first.body}},
        "misplaced": {"stored": {elsewhere.place: elsewhere.body}},
        "torn": {"torn": ["batch 0"]},
        "committed ahead": {"ahead": ["orders@broker-a:0"]},
        "write ids differ": {"write_ids": {first.body: {"a", "b"}}},
        "write ids are shared": {"write_ids": {first.body: {"a"}, second.body: {"a"}}},
        "visible twice": {"transactional": True, "stored": history().stored | {elsewhere.place: first.body}},
        "visible too early": {"undecided": ["batch 0"]},
        "rolled back too early": {"rolled_back": ["a half message of query/0"]},
        "divided": {
            "ranged": True,
            "batches": {number: [Row((*A, number), b"sink-0.0-any:%d" % number)] for number in range(2)},
        },
        "owned twice": {"overlaps": ["orders@broker-a:0"]},
        "set back": {"set_back": ["orders@broker-a:0"]},
        "batch is wrong": {"batch_jobs": ["('orders', 'broker-a', 0, 3) is missing"]},
        "miscounted": {"miscounted": ["3 rows are reported"]},
        "dead letters are wrong": {"dead_letters": missing},
        "memory over its bound": {"oversized": ["9 bytes are in memory, 5 may be"]},
        "kept for nobody": {"left_over": ["query-executor-0 has 1 request"]},
        "waited for nothing": {"idle": ["query-executor-0 waits 2.0 s for broker-a-0"]},
        "sent again for nothing": {"stored_when_well": Counter({first.body: 2})},
        "slow": {"slow": ["task 0.0 of query-executor-0 took 100 s"]},
        "not aligned": {"unaligned": ["('orders', 'broker-a', 0, 3) is 100 ms late"]},
        "died of an outage": {"died": ["ConnectError: refused"]},
        "refused": {"refused": ["writer-0-0:4"]},
        "unexpected error": {"errors": ["DataLossError: gone"]},
    }
    return changes[name]


def test_judges_find_nothing_where_nothing_is_wrong() -> None:
    assert judge(history()) == {}


@pytest.mark.parametrize("name", JUDGES)
def test_each_judge_finds_what_it_is_for(name: str) -> None:
    assert name in judge(replace(history(), **_changed(name)))


def test_a_message_that_nobody_sent_is_a_phantom() -> None:
    assert "phantom" in judge(replace(history(), sent={b"writer-0-0:1"}))


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        ("batch: DataLossError: gone [condition=OFFSETS_EXPIRED]", True),
        ("batch: NameServerError: no name server answers", False),
        ("batch: DataLossError: gone [condition=QUEUE_LOST]", False),
        ("DataLossError: gone [condition=QUEUE_LOST]", True),
    ],
)
def test_a_job_may_end_in_an_outage_and_where_a_queue_is_removed(error: str, wrong: bool) -> None:
    good = history()
    good.did["a queue that was read is removed"] = 1
    assert ("unexpected error" in judge(replace(good, errors=[error]))) is wrong


def test_what_retention_deleted_is_not_lost() -> None:
    good = history()
    expired = {(*A, 3)}
    assert judge(replace(good, batches={0: good.batches[0], 1: good.batches[1][:1]}, expired=expired)) == {}


def test_a_copy_that_retention_deleted_is_not_visible_twice() -> None:
    good = history()
    first, copy = (*A, 0), (*A, 4)
    twice = replace(good, transactional=True, stored={**good.stored, copy: good.stored[first]})
    assert "visible twice" in judge(twice)
    assert "visible twice" not in judge(replace(twice, expired={first}))


def test_a_strict_query_may_end_where_a_batch_that_it_runs_again_lacks_messages() -> None:
    strict = replace(history(), strict=True, expired={(*A, 3)}, errors=["DataLossError: gone"])
    assert judge(replace(strict, finished={MessageQueue(*A): 2})) == {}
    assert "unexpected error" in judge(replace(strict, finished={MessageQueue(*A): 4}))


def test_a_master_shows_late_what_is_new_and_hides_nothing_that_it_has_shown() -> None:
    scheduler = Scheduler()
    network = Network(scheduler, Random(0), Habits(), Random(0))
    cluster = Cluster(
        network,
        brokers=("broker-a",),
        name_servers=1,
        slaves=0,
        slave_readable=False,
        limits=PullLimits(),
        on_append=lambda *_: None,
        on_commit=lambda *_: None,
    )
    cluster.create_topic("orders", 1)
    queue, replica = MessageQueue(*A), cluster.replicas["broker-a", 0]
    for _ in range(3):
        cluster.send(OutgoingMessage("orders", b"x"), queue)
    cluster.delay_index("broker-a", 2, 1.0)
    shown = [replica.max_offset("orders", 0)]
    for _ in range(3):
        cluster.send(OutgoingMessage("orders", b"x"), queue)
        shown.append(replica.max_offset("orders", 0))
    assert shown == [3, 3, 3, 4]
    scheduler.run(lambda: False, until_s=2.0)
    assert replica.max_offset("orders", 0) == 6


@pytest.mark.parametrize(("froze_s", "idle"), [(0.0, ["member waits 5.0 s for broker"]), (20.0, [])])
def test_a_wait_that_ends_in_vain_is_held_against_a_process_unless_it_froze(
    froze_s: float, idle: list[str]
) -> None:
    """A frozen process's time-outs pass; when it thaws, one thread may take what another waits for."""
    scheduler, told = Scheduler(), []
    network = Network(scheduler, Random(0), Habits(), Random(0))
    network.on_idle = told.append
    network.servers["10.0.0.1:1"] = SimpleNamespace(name="broker", accepts=True)
    process = Process("member")

    def wait() -> None:
        stream = network.connect(process, "10.0.0.1:1", ConnectionOptions())
        process.frozen_until = scheduler.now + froze_s
        stream.wait(5.0, writable=False)

    scheduler.start(wait, process, "member")
    scheduler.run(lambda: False, until_s=60.0)
    assert told == idle


def test_a_process_that_is_frozen_for_long_is_not_thawed_by_a_shorter_freeze() -> None:
    process = Process("member")
    process.freeze(70.0)
    process.freeze(12.0)
    assert process.frozen_until == 70.0


def test_a_listener_that_may_be_slow_and_takes_no_time_loses_nothing() -> None:
    fault = Fault(10.0, "answers to members of a group", 0.1, 1401799597)  # listeners are slow until then
    group = GroupPlan(slots=2, slow=0.9)
    assert live(Plan(seed=7, writers=((20, 0.0, False),), faults=(fault,), group=group)).wrong == {}
