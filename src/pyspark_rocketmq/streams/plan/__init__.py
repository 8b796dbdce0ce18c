"""A pipeline as data: its steps, times and emission, what is known of them before anything runs."""
