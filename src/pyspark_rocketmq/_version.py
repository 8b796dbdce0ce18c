"""The one place of versions."""

__version__ = "0.1.0"

ROCKETMQ_VERSION = "5.5.0"
"""The release of RocketMQ that development clusters run by default.

The newest that is complete in Maven Central: 5.5.1 has a broker there, but no name server, client or tools.
"""
