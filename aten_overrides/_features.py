"""Which pieces of this work a torch already holds, and what the package does about each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """A piece and the first torch release with it (None: in no release yet)."""

    name: str
    what: str
    since: tuple[int, int] | None
    upstream: str


# Read off the wheels up to 2.15.0 in September 2026.
PIECES = (
    Piece("eigh", "batched eigh through the batched cuSOLVER routine", (2, 12), "PR 175403"),
    Piece("lu rule", "batch-aware choice between cuBLAS and cuSOLVER for LU", (2, 13), "PR 185344"),
    Piece("lu workspace", "one workspace for a loop of getrf calls", (2, 14), "PR 181998"),
    Piece("lu kernel", "batched LU kernel of torch's own", (2, 15), "PR 190329"),
    Piece("streams", "auxiliary streams for loops of cuSOLVER calls", None, "issue 182001"),
    Piece("prefer cublas", 'preferred_linalg_library("cublas")', None, "review of PR 185344"),
)

_OURS = {
    "eigh": "the measured choice of back ends while enabled",
    "lu rule": "the measured choice replaces it while enabled",
    "lu workspace": "our loop has one too",
    "streams": "streamed_cusolver",
    "lu kernel": "batched_native, where the gpu library was built with it",
    "prefer cublas": "added while enabled",
}


def held(piece: Piece, release: tuple[int, int]) -> bool:
    """Whether a torch release has the piece."""
    return piece.since is not None and release >= piece.since


def ours(piece: Piece, release: tuple[int, int]) -> str:
    """What the package does about a piece on this release."""
    if piece.name == "eigh" and held(piece, release):
        return 'left to torch, unless enable(only=...) names "eigh"'
    if piece.name == "lu kernel" and held(piece, release):
        return (
            f"{_OURS[piece.name]}; else torch's from batch 8 and n 256 on, where it was measured "
            "ahead of every library route"
        )
    return _OURS[piece.name]
