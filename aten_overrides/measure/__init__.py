"""Clocks, problems and machine facts that ``scan`` and ``bench`` measure with."""
