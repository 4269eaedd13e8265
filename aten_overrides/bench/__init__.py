"""The project's own numbers: ``aten-overrides bench``.

``grids.json`` says which problems, ``rivals`` who computes them, ``run`` times all rivals of a
problem in the same rounds, with the machine's limits in the same run.
"""
