"""Traces: spans of OpenTelemetry, and records in RocketMQ's trace topic."""
