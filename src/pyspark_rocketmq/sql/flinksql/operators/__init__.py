"""What operators and calls become: expressions of Spark with arguments in them, and whole numbers."""
