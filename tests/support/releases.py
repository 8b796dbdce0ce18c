"""How RocketMQ itself names its releases."""

from __future__ import annotations


def version_name(release: str) -> str:
    """Return what servers call a release: ``V5_4_0``."""
    return f"V{release.replace('.', '_')}"
