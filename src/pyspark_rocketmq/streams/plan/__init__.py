"""A pipeline as data: its steps, times and emission, and their analysis before anything runs."""
