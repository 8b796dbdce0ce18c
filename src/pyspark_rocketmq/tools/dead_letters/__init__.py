"""Dead letters: what they are, before they are replayed, and policies that replay them regularly."""
