"""What is said of a Spark that cannot do something."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pyspark
import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import SourceOptions, option_reference, parse_options
from pyspark_rocketmq.spark.features import FEATURES, SparkFeatures
from pyspark_rocketmq.streams import rescale
from pyspark_rocketmq.streams.frame import extras

ROOT = Path(__file__).parents[3]
OLD, OLDISH, NEW = (
    SparkFeatures("4.0.5", (4, 0)), SparkFeatures("4.1.4", (4, 1)), SparkFeatures("4.3.0", (4, 2))
)  # fmt: skip
LIMITS = {
    "maxOffsetsPerTrigger": "10000000",  # its default
    "maxBytesPerTrigger": "1m",
    "maxRatePerQueue": "5",
    "minOffsetsPerTrigger": "5",
    "maxTriggerDelay": "1m",
}


def check(features: SparkFeatures, given: dict[str, str]) -> None:
    options = parse_options(SourceOptions, {"nameServer": "a:1", "topic": "t"} | given, environ={})
    features.check_options(options, given)


def test_the_running_pyspark_is_known_by_its_api() -> None:
    numbers = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    assert SparkFeatures(pyspark.__version__, min(numbers, (4, 2))) == FEATURES


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("spelled", [str, str.lower])
def test_a_limit_names_the_release_that_has_it(name: str, spelled: type[str]) -> None:
    given = {spelled(name): LIMITS[name]}
    for features in (OLD, OLDISH):
        message = (
            f"the option {name} needs Spark 4.2 or later, but this is {features.version}: "
            "remove it, or use that release"
        )
        with pytest.raises(OptionError, match=re.escape(message)):
            check(features, given)
    check(NEW, given)


def test_an_alias_of_a_limit_is_refused_too() -> None:
    with pytest.raises(OptionError, match=r"maxRatePerQueue needs Spark 4\.2"):
        check(OLD, {"pull.max.speed.per.partition": "5"})


def test_filters_are_pushed_down_since_4_1() -> None:
    with pytest.raises(OptionError, match=r"pushDownFilters needs Spark 4\.1 or later, but this is 4\.0\.5"):
        check(OLD, {"pushDownFilters": "true"})
    check(OLDISH, {"pushDownFilters": "true"})


def test_state_of_python_workers_is_there_since_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "FEATURES", OLD)
    with pytest.raises(OptionError, match=r"window#2 keeps state in Python workers, which needs Spark 4\.1"):
        extras.require_state("window#2")


def test_a_job_is_rescaled_since_4_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(import_module("pyspark_rocketmq.streams.run.rescale"), "FEATURES", OLDISH)
    with pytest.raises(OptionError, match=r"rescaling a job needs Spark 4\.2 or later, but this is 4\.1\.4"):
        rescale("shop.revenue", 8, checkpoint=str(tmp_path))


def test_what_is_not_set_or_set_to_none_is_accepted() -> None:
    check(
        OLD, {"maxOffsetsPerTrigger": "-1", "maxRatePerQueue": "-1", "pushDownFilters": "false", "tags": "a"}
    )


def test_the_page_about_releases_has_every_option_that_not_all_have() -> None:
    page = (ROOT / "docs" / "spark-versions.md").read_text().splitlines()
    head, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page if line.startswith("|")
    ]
    releases = [cell.split(",")[0] for cell in head[1:]]
    assert releases == ["4.0", "4.1", "4.2"]
    for option in option_reference(SourceOptions):
        if option.since is not None:
            (row,) = [cells for first, *cells in rows if f"`{option.name}`" in first]
            assert row == ["yes" if release >= option.since else "error" for release in releases], option.name
