"""Find sizes at which a callable becomes slower by a step: ``aten-overrides scan``.

``series`` holds samples and estimates a jump between two neighbouring sizes, ``search`` decides
what to measure next, ``kinds`` tells steps, drops and teeth apart; none of them reads a clock or
imports torch, so ``synthetic`` can try them on curves whose cliffs are known.
"""
