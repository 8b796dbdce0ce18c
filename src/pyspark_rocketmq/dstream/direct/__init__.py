"""The direct stream: offset ranges planned on the driver, read by tasks."""
