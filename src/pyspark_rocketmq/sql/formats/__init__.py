"""The formats of Flink's tables: their options, the schemas that Flink derives, and changelogs."""
