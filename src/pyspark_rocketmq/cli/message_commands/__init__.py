"""Commands about messages: look at them, read, write and replay them."""
