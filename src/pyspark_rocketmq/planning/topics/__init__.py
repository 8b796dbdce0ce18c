"""Which topics and queues a query reads."""
