"""Commands about messages: peek, consume, produce and replay."""
