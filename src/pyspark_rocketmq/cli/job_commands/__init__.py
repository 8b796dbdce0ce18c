"""Commands that run jobs: SQL, streams, the demonstration, the dashboard."""
