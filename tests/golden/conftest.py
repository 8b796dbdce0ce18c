"""The examples of property tests, for `make mutants`."""

from tests.support.examples import load_profiles

load_profiles()
