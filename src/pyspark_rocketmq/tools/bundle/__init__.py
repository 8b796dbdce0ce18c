"""The support bundle: what others need to find a cause, in one archive without bodies and secrets."""
