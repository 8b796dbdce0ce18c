"""Commands that run jobs: SQL, streams, the demo and the dashboard."""
