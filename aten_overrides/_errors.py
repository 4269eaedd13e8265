"""The error that every command prints as one message, without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Says what was asked, what was found and what to do; commands exit with code 2."""
