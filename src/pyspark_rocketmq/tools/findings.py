"""The findings of a diagnosis."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Finding", "Verdict", "bad", "good", "poor"]


class Verdict(enum.Enum):
    """How bad a finding is."""

    GOOD = "good"
    POOR = "poor"
    """It works, but may cause problems."""
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found and, unless it is good, what to do."""

    verdict: Verdict
    subject: str
    seen: str
    advice: str = ""


def good(subject: str, seen: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(Verdict.GOOD, subject, seen)


def poor(subject: str, seen: str, advice: str) -> Finding:
    """Return a finding that may cause problems."""
    return Finding(Verdict.POOR, subject, seen, advice)


def bad(subject: str, seen: str, advice: str) -> Finding:
    """Return a finding that must be fixed."""
    return Finding(Verdict.BAD, subject, seen, advice)
