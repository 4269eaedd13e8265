"""The back end that stock PyTorch 2.6 to 2.12 takes for an LU factorization, to compare with."""

from __future__ import annotations

from aten_overrides._select import Facts, Problem

RULE = "stock 2.6 (m >= 512)"


def lu_factor(problem: Problem, preference: str, facts: Facts) -> str:
    """Back end by name. Stock knows neither streams nor "cublas", which it treats as "default".

    Whether a call is captured does not change its choice; MAGMA then fails.
    """
    square = problem.m == problem.n
    magma = facts.stock and preference != "cusolver"
    small = square and (
        problem.batch == 1 or problem.m <= 16 or (problem.m <= 128 and problem.batch <= 16)
    )
    if magma and (preference == "magma" or not small):
        return "stock"
    if not square or problem.batch == 1 or problem.m >= 512:
        return "looped_cusolver"
    return "batched_cublas"
