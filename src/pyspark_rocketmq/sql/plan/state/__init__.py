"""Steps with state: what a key keeps, and its operators in Spark."""
