"""Nexmark: its jobs are accepted, and the events and results that they are compared with are fixed."""

from __future__ import annotations

import hashlib
import json

import pytest
from benchmarks.nexmark.events import AUCTION, BID, PERSON, events
from benchmarks.nexmark.expected import EXPECTED
from benchmarks.nexmark.run import JOBS, job_text

from pyspark_rocketmq.sql.check import check_job

QUERIES = sorted(path.stem for path in JOBS.glob("q*.sql"))


def test_the_events_follow_from_the_seed_and_are_those_of_nexmark():
    made = list(events(500))
    assert [event.body() for event in made] == [event.body() for event in events(500)]
    assert hashlib.sha256(made[49].body().encode()).hexdigest().startswith("3cbe598de1ce")
    kinds = [event.kind for event in made[:50]]
    assert [kinds.count(kind) for kind in (PERSON, AUCTION, BID)] == [1, 3, 46]
    assert [event.at for event in made] == sorted(event.at for event in made)
    bid = json.loads(made[49].body())["bid"]
    assert set(bid) == {"auction", "bidder", "price", "channel", "url", "dateTime", "extra"}
    assert next(events(1, seed=2)).values != made[0].values


def test_every_query_has_a_job_and_a_result_that_is_not_empty():
    assert sorted(EXPECTED) == QUERIES
    made = list(events(3_000))
    assert [name for name, calculate in EXPECTED.items() if not calculate(made)] == []


@pytest.mark.parametrize("query", QUERIES)
def test_jobs_are_accepted_without_spark(query):
    assert check_job(job_text(query), checkpoint_location="/checkpoint") >= 6
