"""SET and RESET of a job."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import CompatibilityWarning, RuntimeMode
from pyspark_rocketmq.sql.settings import Settings, first_settings, query_checkpoint, spark_setting


@pytest.mark.parametrize("name", ["queryName", "pipeline.name", "QUERYNAME"])
def test_the_name_of_a_query_is_that_of_the_next_insert_only(name: str) -> None:
    settings = Settings()
    settings.set("outputMode", "update")
    settings.set(name, "nightly")
    assert settings.options.query_name == "nightly"
    settings.insert_begins()
    assert settings.options.query_name is None
    assert settings.options.output_mode.value == "update"


def test_the_last_value_counts_however_the_name_is_written() -> None:
    settings = Settings()
    settings.set("trigger", "10 seconds")
    settings.set("TRIGGER", "availableNow")
    assert settings.options.trigger_ms is None
    settings.set("trigger", "2 seconds")
    assert settings.options.trigger_ms == 2_000


def test_reset_forgets_one_or_all() -> None:
    settings = Settings()
    for name, value in (("outputMode", "update"), ("queryName", "q"), ("checkpointLocation", "/c")):
        settings.set(name, value)
    settings.reset("QueryName")
    assert (settings.options.query_name, settings.options.checkpoint_location) == (None, "/c")
    settings.reset(None)
    assert settings.options == Settings().options


def test_a_setting_that_is_refused_changes_nothing() -> None:
    settings = Settings()
    settings.set("outputMode", "update")
    with pytest.raises(OptionError):
        settings.set("outputMode", "sideways")
    with pytest.raises(OptionError, match="unknown"):
        settings.set("outptMode", "append")
    assert settings.options.output_mode.value == "update"
    settings.set("queryName", "q")  # what was refused is not kept either
    assert settings.options.output_mode.value == "update"


def test_flinks_settings_are_sparks() -> None:
    assert spark_setting("Parallelism.Default") == "spark.sql.shuffle.partitions"
    assert spark_setting("table.local-time-zone") == "spark.sql.session.timeZone"
    assert spark_setting("spark.executor.cores") == "spark.executor.cores"
    assert spark_setting("queryName") is None


def test_the_checkpoint_of_the_call_comes_last() -> None:
    given = {"checkpointLocation": "/theirs", "queryName": "q"}
    assert first_settings(given, "/ours") == {"checkpointLocation": "/ours", "queryName": "q"}
    assert first_settings(given, None) == given
    assert first_settings(None, None) == {}


def test_a_streaming_query_needs_a_checkpoint() -> None:
    settings = Settings()
    with pytest.raises(OptionError, match="--checkpoint"):
        query_checkpoint(settings.options, "q")
    settings.set("checkpointLocation", "/c/")
    assert query_checkpoint(settings.options, "q") == "/c/q"
    assert query_checkpoint(settings.options, "shop/..q.") == "/c/shop/..q."


@pytest.mark.parametrize("name", ["..", "../q", "a/../../q", "/q", ".", "a/", "..\\q"])
def test_the_checkpoint_of_a_query_is_in_that_of_its_job(name: str) -> None:
    settings = Settings()
    settings.set("checkpointLocation", "/c")
    with pytest.raises(OptionError, match=r"cannot be the name of a query.*SET 'queryName'"):
        query_checkpoint(settings.options, name)


@pytest.mark.parametrize("name", ["idleTimeout", "table.exec.source.idle-timeout"])
def test_the_time_after_which_a_table_is_idle(name):
    settings = Settings()
    assert settings.options.idle_ms is None
    settings.set(name, "30 s")
    assert settings.options.idle_ms == 30_000


def test_settings_that_only_flink_needs_are_accepted_with_a_warning() -> None:
    settings = Settings()
    with pytest.warns(CompatibilityWarning, match=r"table.exec.mini-batch.enabled \(a micro-batch has many"):
        settings.set("table.exec.mini-batch.enabled", "true")


def test_the_time_to_live_of_state_has_flinks_name() -> None:
    settings = Settings()
    settings.set("table.exec.state.ttl", "1 h")
    assert settings.options.state_ttl_ms == 3_600_000


def test_a_setting_is_the_same_under_each_of_its_names() -> None:
    settings = Settings()
    settings.set("execution.runtime-mode", "batch")
    settings.set("runtimeMode", "streaming")
    assert settings.options.mode is RuntimeMode.STREAMING
    settings.set("Execution.Runtime-Mode", "batch")
    assert settings.options.mode is RuntimeMode.BATCH
    settings.set("stateTtl", "1 h")
    settings.reset("table.exec.state.ttl")
    assert settings.options.state_ttl_ms is None
    settings.set("pipeline.name", "a")
    settings.insert_begins()
    assert settings.options.query_name is None


def test_reset_of_an_unknown_setting_is_an_error() -> None:
    settings = Settings()
    settings.set("runtimeMode", "batch")
    with pytest.raises(OptionError, match="unknown option runtime-mode: did you mean runtimeMode"):
        settings.reset("runtime-mode")
    settings.reset("pipeline.object-reuse")  # without effect
    assert settings.options.mode is RuntimeMode.BATCH
