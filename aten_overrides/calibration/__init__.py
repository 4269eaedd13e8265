"""Measure every back end on the GPU at hand: what `aten-overrides calibrate` is made of."""
