"""What the streams API must hold, and the test that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.collected import collected_tests

ROOT = Path(__file__).parents[3]

SHOWN = {
    "1: the article's program, its published sums, no Python above the scan, on a broker": [
        "tests/spark/test_streams_windows.py::test_the_articles_program_gives_the_published_sums",
        "tests/spark/test_streams_broker.py::test_the_articles_program",
    ],
    "2: a silent topic's window closes by heartbeats, and does not without": [
        "tests/spark/test_streams_broker.py::test_the_articles_program",
        "tests/spark/test_streams_broker.py::test_without_heartbeats_a_silent_topic_closes_nothing",
    ],
    "3: queues apart in time lose nothing; unaligned they do, and it is counted": [
        "tests/spark/test_streams_broker.py::test_queues_that_are_apart_in_time",
    ],
    "4: one silent queue of several keeps no window open": [
        "tests/spark/test_streams_broker.py::test_the_articles_program",
    ],
    "5: page clicks by the time in the record": [
        "tests/spark/test_streams_windows.py::test_page_clicks_by_the_time_in_the_record",
        "tests/spark/test_streams_broker.py::test_page_clicks_to_a_topic_and_again_after_a_restart",
    ],
    "6: tumbling windows step by step": [
        "tests/spark/test_streams_windows.py::test_a_tumbling_window_goes_out_once_and_late_rows_are_left_out",
    ],
    "7: hopping windows step by step": [
        "tests/spark/test_streams_windows.py::test_a_late_row_is_left_out_of_the_closed_hopping_windows_only",
    ],
    "8: sessions step by step": ["tests/spark/test_streams_windows.py::test_sessions_end_by_silence"],
    "9: fire modes, results before and after the end; late rows counted": [
        "tests/unit/streams/test_emission.py::test_late_rows_make_results_of_their_own",
        "tests/unit/streams/test_emission.py::test_late_rows_make_the_result_anew",
        "tests/unit/streams/test_emission.py::test_results_after_the_end_come_while_late_rows_change_them",
        "tests/spark/test_streams_state.py::test_late_rows_make_the_result_anew_with_every_aggregate",
        "tests/spark/test_streams_state.py::test_late_rows_make_results_of_their_own_of_the_fields_types",
    ],
    "10: every aggregate against plain Python": [
        "tests/spark/test_streams_windows.py::test_every_aggregate_is_that_of_plain_python",
        "tests/spark/test_streams_windows.py::test_many_different_values_are_counted_within_two_percent",
    ],
    "11: reduce and accumulators over several batches": [
        "tests/spark/test_streams_windows.py::test_functions_over_all_rows_of_a_window",
        "tests/spark/test_streams_state.py::test_groups_that_grow_give_what_collected_ones_give",
    ],
    "12: joins in windows and intervals, inner and left, by more than equality": [
        "tests/spark/test_streams_steps.py::test_streams_are_joined_in_a_window",
        "tests/spark/test_streams_steps.py::test_streams_are_joined_within_an_interval",
        "tests/spark/test_streams_steps.py::test_keyed_streams_are_joined",
        "tests/spark/test_streams_state.py::test_values_meet_the_latest_of_the_other_side",
    ],
    "13: dimension tables that change while the stream runs": [
        "tests/spark/test_streams_steps.py::test_dimension_tables_are_seen_anew",
        "tests/unit/streams/test_dimension.py::test_a_file_is_read_anew_after_its_time",
    ],
    "14: a split to two sinks and to a union; the source is read once": [
        "tests/spark/test_streams_steps.py::test_a_split_gives_each_record_to_its_sink",
        "tests/spark/test_streams_steps.py::test_two_sinks_share_one_query_that_reads_once",
    ],
    "15, 16: kill -9, lost local folders, a copied checkpoint; table, files, topic": [
        "tests/chaos/test_streams_kills.py::test_each_result_counts_once",
    ],
    "17: executors come, die and go; a second process": [
        "tests/spark/test_streams_cluster.py::test_executors_come_die_and_go",
        "tests/spark/test_streams_cli.py::test_a_standby_takes_over_and_stops_when_it_is_told",
    ],
    "18: queues that come and go": ["tests/spark/test_streams_broker.py::test_queues_that_come_and_go"],
    "19: the state of a job in another number of partitions": [
        "tests/spark/test_streams_rescale.py::test_the_state_is_spread_anew_and_totals_are_exact",
    ],
    "20: forty functions, lifted or not, over a thousand records": [
        "tests/spark/test_streams_steps.py::test_a_lifted_function_does_what_python_does",
        "tests/spark/test_streams_steps.py::test_other_functions_are_left_to_python",
    ],
    "21: malformed records and functions that raise": [
        "tests/spark/test_streams_steps.py::test_malformed_records_are_skipped_and_counted_or_fail",
        "tests/spark/test_streams_broker.py::test_dead_letters_go_to_their_topic",
        "tests/spark/test_streams_broker.py::test_a_run_that_ends_has_sent_its_dead_letters",
    ],
    "22: the state of a running job, what changed in it, what expires": [
        "tests/spark/test_streams_state.py::test_the_state_of_a_running_job_can_be_read_and_expires",
    ],
    "23: the group's offsets after a clean stop": [
        "tests/spark/test_streams_broker.py::test_the_articles_program",
    ],
    "24: a gigabyte for all processes of a job": [
        "tests/spark/test_streams_small.py::test_a_job_with_many_keys_takes_a_gigabyte",
    ],
    "25: both spellings of every name; every Java method": [
        "tests/unit/streams/test_api.py::test_every_camel_case_name_has_its_twin",
        "tests/unit/streams/test_api.py::test_every_java_method_is_there_or_said_not_to_be",
    ],
}
"""By number; native against Python (26) is ``benchmarks/streams.py``, ten minutes in a gigabyte (24) are
``benchmarks/footprint.py``."""


@pytest.mark.parametrize("what", SHOWN)
def test_it_is_shown(what: str) -> None:
    for place in SHOWN[what]:
        file, _, test = place.partition("::")
        assert test in collected_tests(ROOT / file), place
