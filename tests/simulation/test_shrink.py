"""Lives that fail become short, plain, and independent of what the world draws from a seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulation.drawing import draw_plan
from tests.simulation.life import Verdict
from tests.simulation.network import Habits
from tests.simulation.plan import Plan
from tests.simulation.scenarios import Scenario, load, save
from tests.simulation.scene import Fault
from tests.simulation.shrink import shrink
from tests.simulation.stage import Accident

FAULTS = tuple(Fault(float(at), f"fault {at}", 10.0, at) for at in range(12))
ACCIDENTS = tuple(Accident("query killed: read", number, at_s=number + 0.5) for number in range(1, 9))
LIFE = Plan(
    seed=7,
    brokers=3,
    queues=8,
    habits=Habits(jitter_s=0.02, tls=True),
    options={"startingOffsets": "earliest", "pullBatchSize": "7", "minPartitions": "2"},
    writers=((150, 0.1, False), (60, 0.1, True)),
    faults=FAULTS,
)


class World:
    """Lives in which judges object to what they are told to object to."""

    def __init__(self, **judges: Callable[[Plan], bool]) -> None:
        self.judges = judges
        self.lives = 0

    def live(self, plan: Plan) -> Verdict:
        """Live a life whose accidents are drawn unless they are listed."""
        self.lives += 1
        accidents = ACCIDENTS if plan.accidents is None else plan.accidents
        listed = replace(plan, accidents=accidents)
        wrong = {name: ["it is wrong"] for name, objects in self.judges.items() if objects(listed)}
        return Verdict(plan, wrong, 1.0, 0, Counter(), (), accidents)


def test_only_what_is_needed_is_left() -> None:
    world = World(
        lost=lambda plan: (
            {FAULTS[2], FAULTS[8]} <= {replace(each, lasts_s=10.0) for each in plan.faults}
            and ACCIDENTS[3] in (plan.accidents or ())
            and plan.queues > 2
        )
    )
    plan, verdict = shrink(LIFE, world.live)
    assert [fault.kind for fault in plan.faults] == ["fault 2", "fault 8"]
    assert [fault.lasts_s for fault in plan.faults] == [0.1, 0.1]
    assert plan.accidents == (ACCIDENTS[3],)
    assert replace(plan, faults=(), accidents=None) == Plan(seed=7, queues=4)
    assert verdict.wrong == {"lost": ["it is wrong"]}
    assert world.lives < 200


def test_what_fails_by_itself_needs_nothing() -> None:
    plan, _ = shrink(LIFE, World(stalled=lambda _: True).live)
    assert plan == Plan(seed=7, accidents=())


def test_a_part_is_taken_out_of_the_options() -> None:
    plan, _ = shrink(LIFE, World(lost=lambda plan: plan.options.get("pullBatchSize") == "7").live)
    assert plan.options == {"startingOffsets": "earliest", "pullBatchSize": "7"}


def test_what_another_judge_finds_is_another_mistake() -> None:
    world = World(lost=lambda plan: len(plan.faults) > 5, torn=lambda plan: len(plan.faults) <= 5)
    plan, verdict = shrink(LIFE, world.live)
    assert len(plan.faults) == 6
    assert verdict.wrong.keys() == {"lost"}


def test_what_a_judge_finds_only_in_a_shorter_life_is_another_mistake() -> None:
    world = World(lost=lambda plan: len(plan.faults) > 3, torn=lambda plan: len(plan.faults) < len(FAULTS))
    plan, verdict = shrink(LIFE, world.live)
    assert len(plan.faults) == 4
    assert "lost" in verdict.wrong


def test_a_life_in_which_nothing_is_wrong_stays_as_it_is() -> None:
    world = World(lost=lambda _: False)
    assert shrink(LIFE, world.live)[0] == LIFE
    assert world.lives == 1


def test_the_number_of_lives_is_bounded() -> None:
    world = World(lost=lambda plan: len(plan.faults) % 2 == 0)
    shrink(LIFE, world.live, lives=10)
    assert world.lives == 11  # the first one tells what is wrong


@pytest.mark.parametrize(
    "unsound",
    [
        Plan(lossy=True),
        Plan(strict=True, options={"failOnDataLoss": "false"}),
        Plan(retires=True),
        Plan(options={"includeAlignedTimestamp": "true"}),
        Plan(faults=(Fault(1.0, "a topic is created again", 1.0, 0),)),
    ],
)
def test_lives_that_may_fail_are_not_lived(unsound: Plan) -> None:
    assert not unsound.sound
    assert Plan().sound


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_every_drawn_life_is_sound_and_can_be_kept(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        plan = replace(draw_plan(seed), accidents=ACCIDENTS[:1])
        assert plan.sound, seed
        scenario = Scenario(sentence="a message was lost", seed=seed, judges=("lost",), plan=plan)
        save(tmp_path / "kept.json", scenario)
        assert load(tmp_path / "kept.json") == scenario


def test_a_kept_life_names_only_what_is_not_plain(tmp_path: Path) -> None:
    plan = Plan(seed=3, queues=2, faults=FAULTS[:1], accidents=())
    save(tmp_path / "kept.json", Scenario(sentence="a message was lost", seed=3, judges=("lost",), plan=plan))
    text = (tmp_path / "kept.json").read_text()
    assert json.loads(text)["plan"].keys() == {"seed", "queues", "faults", "accidents"}


def test_a_kept_life_with_an_unknown_part_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text('{"sentence": "", "seed": 1, "judges": [], "plan": {"moons": 2}}')
    with pytest.raises(ValueError, match=r"Plan has no \['moons'\]"):
        load(tmp_path / "kept.json")
