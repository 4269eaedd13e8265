"""Measured times of the operations that are loops of cuSOLVER calls, and the intervals made of
them.
"""
