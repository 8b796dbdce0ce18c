"""What the formats of bodies are made of."""
