"""How all pictures look: colours that colour-blind readers tell apart, and an atomic file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError

# Okabe and Ito's palette, with grey in place of yellow, which is faint on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
BLUE, RED = PALETTE[:2]
DARK, LIGHT = "#333333", "#dddddd"
DPI = 200
WIDTH = 8.0  # inches: 1600 pixels, legible at the 800 of a README


def pyplot() -> Any:
    """matplotlib.pyplot without a display. UserError if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(
            "a picture needs matplotlib, which this Python does not have: install it, or leave "
            "--png out"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update(
        {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": DPI}
    )
    return plt


def save(figure: Any, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the PNG under a temporary name, then rename it. UserError if it cannot be written."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        figure.savefig(temporary, format="png", dpi=DPI, metadata=dict(metadata or {}))
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
        pyplot().close(figure)


def plain_log_axis(axis: Any, ticks: list[int]) -> None:
    """A logarithmic x axis with these numbers as its ticks."""
    axis.set_xscale("log")
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
