"""What is started before its test, because it takes its time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_rocketmq.devcluster import DevCluster


@pytest.fixture(scope="session", autouse=True)
def forgetful(request: pytest.FixtureRequest) -> Iterator[DevCluster | None]:
    """A broker that deletes every full file of its log whenever it looks: first 60 s after its start.

    Other tests run meanwhile; None when its own is not to be run.
    """
    if all(item.path.stem != "test_expiry" for item in request.session.items):
        yield None
        return
    settings = {
        "mappedFileSizeCommitLog": str(1 << 20),
        "fileReservedTime": "0",
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "cleanResourceInterval": "1000",
    }
    with DevCluster(broker_config=settings) as cluster:
        yield cluster
