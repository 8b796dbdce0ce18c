"""The settings of a pipeline's builder."""

from __future__ import annotations

import pytest
from tests.unit.streams.small_pipelines import plan_of, stream

from pyspark_rocketmq.errors import PlanError


def test_dead_letters_take_the_options_of_a_sink_and_show_none_of_them():
    plan = plan_of(
        stream().onError(
            "dead-letters",
            topic="letters",
            namesrvAddr="h:1",
            accessKey="me",
            secretKey="hush",
            createTopic=True,
        )
    )
    assert plan.dead_letters == {
        "topic": "letters",
        "nameServer": "h:1",
        "accessKey": "me",
        "secretKey": "hush",
        "createTopic": "true",
    }
    assert "hush" not in repr(plan)


def test_a_name_server_of_dead_letters_is_given_once():
    with pytest.raises(PlanError, match="nameServer is given twice"):
        stream().onError("dead-letters", "letters", "h:1", nameServer="h:2")


@pytest.mark.parametrize("given", [{"topic": "letters"}, {"namesrvAddr": "h:1"}, {"accessKey": "me"}])
def test_other_modes_take_no_topic_and_no_options(given):
    with pytest.raises(PlanError, match=r"onError\('skip'\) sends nothing: it takes no topic and no options"):
        stream().onError("skip", **given)


def test_dead_letters_have_a_topic():
    with pytest.raises(PlanError, match="requires a topic"):
        stream().onError("dead-letters")
