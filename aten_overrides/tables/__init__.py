"""Measured cost tables, one JSON file per GPU; the format is in README.md."""
