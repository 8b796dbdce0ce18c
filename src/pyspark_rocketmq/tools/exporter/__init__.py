"""The exporter: a cluster's groups and topics as Prometheus metrics, with a dashboard and alert rules."""
