"""Which answers a consumer that pulls one by one may go on from."""

from __future__ import annotations

import pytest
from tests.support.lockstep import found

from pyspark_rocketmq.client.read.pull_answer import check_pull, position
from pyspark_rocketmq.client.read.pull_consumer import pull_result
from pyspark_rocketmq.client.requests import PullAnswer
from pyspark_rocketmq.errors import RemoteProtocolError, ServiceNotAvailableError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.remoting.header import PullMessageResponse

QUEUE = MessageQueue("orders", "broker-a", 0)
ALL, SOME = MessageSelector(), MessageSelector.by_tag("a")


def check(
    status: PullStatus, begin: int, end: int, selector: MessageSelector, *, master: bool, records: bytes = b""
) -> None:
    header = PullMessageResponse(next_begin_offset=end, min_offset=0, max_offset=100)
    check_pull(PullAnswer(status, header, memoryview(records)), QUEUE, begin, selector, lambda: master)


GONE = [
    pytest.param(PullStatus.OFFSET_ILLEGAL, 50, ALL, b"", id="begins later"),
    pytest.param(PullStatus.OFFSET_ILLEGAL, 5, SOME, b"", id="ends before"),
    pytest.param(PullStatus.NO_NEW_MSG, 50, SOME, b"", id="jumps"),
    pytest.param(PullStatus.NO_MATCHED_MSG, 50, ALL, b"", id="removed them"),
    pytest.param(PullStatus.FOUND, 14, ALL, found(12, 2).records, id="has a hole"),
]


@pytest.mark.parametrize(("status", "end", "selector", "records"), GONE)
def test_only_a_master_leads_past_messages(
    status: PullStatus, end: int, selector: MessageSelector, records: bytes
) -> None:
    check(status, 10, end, selector, master=True, records=records)
    with pytest.raises(ServiceNotAvailableError, match="its master may") as caught:
        check(status, 10, end, selector, master=False, records=records)
    assert caught.value.retriable


@pytest.mark.parametrize("master", [True, False])
def test_what_is_nothing_special(master: bool) -> None:
    check(PullStatus.FOUND, 10, 14, ALL, master=master, records=found(10, 4).records)
    check(PullStatus.FOUND, 10, 14, SOME, master=master, records=found(12, 1).records)
    check(PullStatus.NO_NEW_MSG, 10, 10, ALL, master=master)
    check(PullStatus.NO_MATCHED_MSG, 10, 10, ALL, master=master)
    check(PullStatus.NO_MATCHED_MSG, 10, 810, SOME, master=master)


@pytest.mark.parametrize("end", [9, 10])
def test_an_answer_that_does_not_advance_is_refused(end: int) -> None:
    with pytest.raises(RemoteProtocolError, match="does not follow them"):
        check(PullStatus.FOUND, 10, end, ALL, master=True, records=found(10, 1).records)


@pytest.mark.parametrize("end", [9, 10])
def test_a_pull_consumer_returns_no_messages_that_it_would_return_again(end: int) -> None:
    """Its caller continues at the next offset, and would pull the same messages without an end."""
    header = PullMessageResponse(next_begin_offset=end, min_offset=0, max_offset=100)
    answer = PullAnswer(PullStatus.FOUND, header, memoryview(found(10, 1).records))
    with pytest.raises(RemoteProtocolError, match="does not follow them"):
        pull_result(QUEUE, SOME, 10, answer)


@pytest.mark.parametrize("field", ["nextBeginOffset", "offsetDelta", "suggestWhichBrokerId"])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_what_is_no_64_bit_number_is_the_peers_error(field: str, value: int) -> None:
    """Not one of the decoder's arrays, which does not say which answer is meant."""
    fields = {"nextBeginOffset": "32", "minOffset": "0", "maxOffset": "50"}
    assert position(fields | {"offsetDelta": str(2**63 - 1)}) == (32, 0, 2**63 - 1)
    with pytest.raises(RemoteProtocolError, match=field):
        position(fields | {field: str(value)})
