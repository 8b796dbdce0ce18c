"""What tests send is stored once, also where the machine is busy: a repetition fails any exact comparison."""

from __future__ import annotations

import pytest
from tests.support.patient import patient_client, patient_producer

from pyspark_rocketmq.client import OutgoingMessage
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.testing import Delay, Fault, MockBroker, Refuse


@pytest.mark.parametrize(
    ("trouble", "times"), [(Delay(3.2), 1), (Refuse(ResponseCode.SYSTEM_BUSY), 6)], ids=["late", "busy"]
)
def test_a_message_is_sent_once_to_a_broker_that_stalls(trouble: Fault, times: int) -> None:
    with MockBroker({"orders": 1}) as broker, patient_client(broker.name_server) as client:
        injected = broker.inject(trouble, on=RequestCode.SEND_BATCH_MESSAGE, times=times)
        (queue,) = client.write_queues("orders")
        result = patient_producer(client).send_batch([OutgoingMessage("orders", b"x")] * 3, queue)
        assert injected.hits == times
        assert result.queue_offset == 0
        assert client.max_offsets([queue]) == {queue: 3}
