"""Fetch a base's source, apply its patch series, check it, and relink the linalg library of a
wheel.
"""
