"""Where a test runs: what it needs decides, not how long it takes."""

from __future__ import annotations

from typing import Final

import pytest

NEEDS: Final = {
    "cluster": "separate servers: several brokers, slaves, TLS, access lists, other settings, other files, "
    "a small disk (`unshare`)",
    "old": "RocketMQ 5.4 or 4.9; their fixtures and parameters set the mark",
    "java": "RocketMQ's Java clients or tools, as another member or to compare with",
    "programs": "separate Spark programs: processes, executors, standalone clusters, notebooks",
    "kills": "kills of several kinds, repeatedly",
    "lives": "hundreds of simulated lives for each planted mistake",
    "releases": "checkpoints of earlier releases, of every kind of state",
    "packages": "packages that its environments install: pyspark-client, Sail, Spark 4.1 with Delta, Iceberg",
    "mqtt": "a server for MQTT",
    "mariadb": "MariaDB's server, which `make mariadb` installs",
    "prometheus": "Prometheus' promtool, which `make prometheus` fetches",
    "kafka": "a Kafka, which it fetches",
}
"""What puts a test into `make test-all` only: ``@pytest.mark.needs("cluster")``."""

_SEPARATE: Final = {
    **dict.fromkeys(("mq54", "5.4.0", "mq49", "4.9.7"), "old"),
    "proxied": "cluster",
}
"""What fixtures and parameters need, by their names."""

_WITH_BROKERS: Final = frozenset({"contract", "spark", "chaos"})


def needs(item: pytest.Item) -> set[str]:
    """Return what a test needs besides the shared broker, a Spark session and the mock cluster.

    Raises
    ------
    pytest.UsageError
        It needs something unknown.
    """
    found = {need for marker in item.iter_markers("needs") for need in marker.args}
    if unknown := found - NEEDS.keys():
        raise pytest.UsageError(f"{item.nodeid} needs {sorted(unknown)}; known are {sorted(NEEDS)}")
    called = getattr(item, "callspec", None)
    values = {value for value in called.params.values() if isinstance(value, str)} if called else set()
    if item.path.parent.name in _WITH_BROKERS:
        names = _SEPARATE.keys() & (values | set(getattr(item, "fixturenames", ())))
        found |= {_SEPARATE[name] for name in names}
    return found
