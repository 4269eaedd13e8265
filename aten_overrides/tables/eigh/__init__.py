"""Measured times of eigh and eigvalsh, and the thresholds made of them: see README.md."""
