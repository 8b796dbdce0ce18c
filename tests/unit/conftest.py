"""The examples of property tests."""

from tests.support.examples import load_profiles

load_profiles()
