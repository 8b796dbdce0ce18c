"""The receivers: group members in Spark tasks, whose blocks Spark stores."""
