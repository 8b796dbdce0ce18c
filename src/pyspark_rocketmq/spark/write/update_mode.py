"""Update mode: changed rows of an aggregation as messages.

# Facts (Spark 4.0 to 4.3, PythonWriteBuilder): a Python data source takes append and complete; a query in
# update mode fails at its start with "does not support Update mode". ``foreachBatch`` takes every mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from pyspark_rocketmq.spark.boundary import called_for_batches

__all__ = ["message_writer"]

_NEEDS_JOB = ("deliveryGuarantee", "jobId")


def message_writer(job: str, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that sends a batch's rows as messages.

    Delivery promise: that of a batch write whose ``jobId`` is derived from the job and the batch's number: at
    least once, and each row once if ``deliveryGuarantee`` is transactional. In update mode, a row is sent
    whenever it has changed; readers use the last message of a key.

    Parameters
    ----------
    job : str
        A name that no other query that writes to the topic has.
    options : Mapping
        The options of the sink.
    """
    given = {name.lower() for name in options}

    def send(batch: DataFrame, number: int) -> None:
        once = {"jobId": f"{job}-{number}"} if given & {name.lower() for name in _NEEDS_JOB} else {}
        others = {name: value for name, value in options.items() if name.lower() != "jobid"}
        batch.write.format("rocketmq").mode("append").options(**others, **once).save()

    return called_for_batches(send)
