"""Stands in for the package expecttest where it is missing: torch's test classes derive from its
TestCase.
"""

from __future__ import annotations

import unittest

ACCEPT = False


class TestCase(unittest.TestCase):
    """unittest's, with the one assertion that expecttest adds; nothing is ever rewritten."""

    maxDiff = None

    def assertExpectedInline(self, actual: str, expect: str, skip: int = 0) -> None:
        """Compares two texts."""
        self.assertMultiLineEqual(expect, actual)


def assert_expected_inline(actual: str, expect: str, skip: int = 0) -> None:
    """The same as a function."""
    TestCase().assertMultiLineEqual(expect, actual)
