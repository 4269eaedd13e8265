"""The gpu library through ctypes. It is opened only after its build facts were compared."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides import _abi
from aten_overrides._cache import cache_dir
from aten_overrides._errors import UserError
from aten_overrides._loops import LoopQuestion, RawLoop
from aten_overrides._names import DTYPES, LOOP_OPS, OPS, PREFERENCES

PACKAGE_FOLDER = Path(__file__).resolve().parent / "lib"
ENTRY_BITS = {
    "lu_factor": 1,
    "lu_solve": 2,
    "eigh": 4,
    "geqrf": 8,
    "orgqr": 16,
    "ormqr": 32,
    "cholesky": 64,
    "cholesky_inverse": 128,
    "ldl_factor": 256,
    "cholesky_solve": 512,
}
ENTRY_NAMES = {"eigh": "linalg_eigh"}  # of the operations whose entry has another name
NO_STUB = ("cholesky_solve",)  # whose function torch tells nobody: not among Library.entries()
STOCK_LIBRARY, STOCK_MAGMA, STOCK_KERNEL = range(3)
_ROUTE_NUMBERS = 16
_WHY = 1000


class RawCall(ctypes.Structure):
    """aten_overrides_gpu_call."""

    _fields_ = (
        ("batch", ctypes.c_int64),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("nrhs", ctypes.c_int64),
        ("ms", ctypes.c_double),
        ("reason", ctypes.c_char_p),
        ("op", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("preference", ctypes.c_int32),
        ("route", ctypes.c_int32),
        ("wanted", ctypes.c_int32),
        ("lanes", ctypes.c_int32),
        ("pivot", ctypes.c_int32),
        ("capturing", ctypes.c_int32),
    )


class _Settings(ctypes.Structure):
    _fields_ = (
        ("strict", ctypes.c_int32),
        ("lanes", ctypes.c_int32),
        ("memory_mib", ctypes.c_int64),
        ("stock", ctypes.c_int32),
    )


class _Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("current", ctypes.c_void_p),
        ("saved", ctypes.c_void_p),
        ("ours", ctypes.c_void_p),
    )


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


LOG_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.POINTER(RawCall))


@dataclass(frozen=True)
class Call:
    """One call of an operation. ``ms``: GPU milliseconds, None where they were not measured.

    ``route`` is what ran, ``wanted`` the first choice, ``reason`` why the two differ (empty if they
    do not). ``capturing`` is None where it was not asked.
    """

    op: str
    dtype: str
    batch: int
    m: int
    n: int
    nrhs: int
    pivot: bool
    preference: str
    route: str
    wanted: str
    reason: str
    lanes: int
    capturing: bool | None
    ms: float | None

    def __str__(self) -> str:
        shape = f"{self.batch} x {self.m} x {self.n}" + (f", {self.nrhs} rhs" if self.nrhs else "")
        lanes = f" on {self.lanes} streams" if self.route == "streamed_cusolver" else ""
        fallback = f" instead of {self.wanted}: {self.reason}" if self.reason else ""
        return f"{self.op} {self.dtype} {shape}: {self.route}{lanes}{fallback}"


@dataclass(frozen=True)
class Entry:
    """An entry of torch's linalg library; the files in which the functions lie ("" if there is
    none).
    """

    name: str
    current: str
    saved: str
    ours: str
    current_address: int


_I32, _I64, _WHY_ARGS = ctypes.c_int32, ctypes.c_int64, (ctypes.c_char_p, ctypes.c_int32)
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "api": (_I32, ()),
    "guard": (_I32, (ctypes.c_char_p, *_WHY_ARGS)),
    "install": (_I32, (ctypes.c_char_p, ctypes.c_uint32, *_WHY_ARGS)),
    "restore": (ctypes.c_uint32, ()),
    "installed": (ctypes.c_uint32, ()),
    "entry_at": (_Entry, (_I32,)),
    "configure": (_I32, (ctypes.POINTER(_Settings), *_WHY_ARGS)),
    "set_table": (None, (ctypes.c_void_p, ctypes.c_void_p)),
    "set_rankings": (_I32, (_I32, ctypes.POINTER(_I64), _I64, *_WHY_ARGS)),
    "lu_factor_route": (_I32, (_I32, _I64, _I64, _I64, _I32, _I32, _I32, _I32, _I32)),
    "native": (_I32, ()),
    "native_architectures": (ctypes.c_char_p, ()),
    "lu_factor": (_I32, (_I32, _I64, _I64, _I64, _I32, *(ctypes.c_void_p,) * 3, *_WHY_ARGS)),
    "eigh": (_I32, (_I32, _I64, _I64, *(_I32,) * 3, *(ctypes.c_void_p,) * 3, *_WHY_ARGS)),
    "eigh_route": (_I32, (_I32, _I64, _I64, *(_I32,) * 5)),
    "eigh_workspace": (_I64, (_I64,)),
    "loop_route": (_I32, (ctypes.POINTER(RawLoop),)),
    "loop_measured": (_I32, (_I32,)),
    "force_route": (_I32, (_I32, _I32)),
    "route_name": (ctypes.c_char_p, (_I32,)),
    "prefer": (_I32, (_I32, *_WHY_ARGS)),
    "limits": (None, (ctypes.POINTER(_I32), ctypes.POINTER(_I64))),
    "created_lanes": (_I32, (_I32,)),
    "release_lanes": (_I32, _WHY_ARGS),
    "count": (ctypes.c_uint64, (_I32, _I32)),
    "set_log": (None, (ctypes.c_void_p, _I32)),
    "profile_start": (None, (_I64,)),
    "profile_stop": (None, ()),
    "profile_take": (_I64, (ctypes.POINTER(RawCall), _I64, ctypes.POINTER(_I64))),
}


def file_of(address: int | None) -> str:
    """The file that holds the function at an address, "" if there is none."""
    info = _DlInfo()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    if not address or not dladdr(address, ctypes.byref(info)) or not info.file:
        return ""
    return str(info.file.decode())


class Library:
    """An opened gpu library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._functions: dict[str, Any] = {}
        try:
            self._dll = ctypes.CDLL(str(path))
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(self._dll, f"aten_overrides_gpu_{name}")
                function.restype = result
                function.argtypes = list(arguments)
                self._functions[name] = function
        except (OSError, AttributeError) as error:
            raise UserError(
                f"the gpu library {path} cannot be loaded: {error}; run `{_abi.BUILD_COMMAND}`"
            ) from error
        if self.call("api") != _abi.API:
            raise UserError(
                f"the gpu library {path} has interface {self.call('api')} and this package needs "
                f"{_abi.API}; run `{_abi.BUILD_COMMAND}`"
            )

    def call(self, name: str, *arguments: object) -> Any:
        """Call the library's function of this name."""
        return self._functions[name](*arguments)

    def _checked(self, what: str, name: str, *arguments: object) -> None:
        why = ctypes.create_string_buffer(_WHY)
        if self.call(name, *arguments, why, _WHY):
            raise UserError(f"{what}: {why.value.decode(errors='replace')}")

    def guard(self, linalg: Path | None) -> None:
        """Make torch's first linalg calls safe for any number of threads; loads nothing."""
        self._checked("torch's lazy loading cannot be guarded", "guard", _encode(linalg))

    def install(self, linalg: Path | None, ops: tuple[str, ...]) -> None:
        """Make the entries of these operations ours, and give back the others."""
        bits = sum(ENTRY_BITS[op] for op in ops)
        self._checked("the overrides cannot be installed", "install", _encode(linalg), bits)

    def restore(self) -> tuple[str, ...]:
        """Give all entries back; returns those that someone else has changed, which are left
        alone.
        """
        return _ops_of(self.call("restore"))

    def installed(self) -> tuple[str, ...]:
        """The operations whose entries call our functions at this moment."""
        return _ops_of(self.call("installed"))

    def entries(self) -> Iterator[Entry]:
        """All entries of a linalg library, with the files that their functions lie in."""
        index = 0
        while (raw := self.call("entry_at", index)).name:
            yield Entry(
                raw.name.decode(),
                file_of(raw.current),
                file_of(raw.saved),
                file_of(raw.ours),
                raw.current or 0,
            )
            index += 1

    def configure(self, *, strict: bool, stock: int, lanes: int = -1, memory_mib: int = -1) -> None:
        """Settings of the overrides; negative numbers leave a limit as it is."""
        settings = _Settings(strict, lanes, memory_mib, stock)
        self._checked("the settings are refused", "configure", ctypes.byref(settings))

    def set_rankings(self, op: str, numbers: Sequence[int] | None) -> None:
        """Let lu_solve or eigh go by these rankings (``tables.own.numbers``); None: by those that
        were compiled in. UserError with the reason if they are refused, which changes nothing.
        """
        given = None if numbers is None else (_I64 * len(numbers))(*numbers)
        count = 0 if numbers is None else len(numbers)
        what = f"the rankings of {op} are refused"
        self._checked(what, "set_rankings", OPS.index(op), given, count)

    def prefer(self, preference: str) -> None:
        """Set torch's preferred library without torch's note that this is experimental."""
        number = PREFERENCES.index(preference)
        self._checked(f"the preference {preference} is refused", "prefer", number)

    def limits(self) -> tuple[int, int]:
        """Streams per call, and MiB for the handles of all auxiliary streams of a device."""
        lanes, memory = _I32(), _I64()
        self.call("limits", ctypes.byref(lanes), ctypes.byref(memory))
        return lanes.value, memory.value

    def release_lanes(self) -> None:
        """Destroy idle auxiliary streams and their handles."""
        self._checked("auxiliary streams cannot be released", "release_lanes")

    def routes(self) -> dict[str, int]:
        """Numbers of all routes by name."""
        names = ((self.call("route_name", number), number) for number in range(_ROUTE_NUMBERS))
        return {name.decode(): number for name, number in names if name is not None}

    def force_route(self, op: str, route: str | None) -> None:
        """Make every call of an operation take this route where it can; None: the choice again."""
        number = -1 if route is None else self.routes()[route]
        if self.call("force_route", OPS.index(op), number):
            raise UserError(f"{op} has no route {route!r}")

    def lu_factor_route(
        self,
        dtype: str,
        batch: int,
        m: int,
        n: int,
        *,
        pivot: bool = True,
        preference: str = "default",
        lanes: int = 4,
        capturing: bool = False,
        native: int = 0,
    ) -> str:
        """The route that lu_factor would choose; ``native``: see ``_select.Native``."""
        number = self.call(
            "lu_factor_route",
            DTYPES.index(dtype),
            batch,
            m,
            n,
            pivot,
            PREFERENCES.index(preference),
            lanes,
            capturing,
            native,
        )
        return str(self.call("route_name", number).decode())

    def native(self) -> int:
        """Whether our kernels can run on the current device: a value of ``_select.Native``."""
        return int(self.call("native"))

    def native_architectures(self) -> tuple[str, ...]:
        """Compute capabilities that our kernels were compiled for, as ("90",); none: not built."""
        text = str(self.call("native_architectures").decode())
        return tuple(part for part in text.split(",") if part)

    def lu_factor(
        self,
        dtype: str,
        shape: tuple[int, int, int],
        pivot: bool,
        a: int,
        pivots: int,
        infos: int,
    ) -> None:
        """Factor (batch, m, n) column-major matrices in place, given by device addresses, on the
        current stream; for measurements.
        """
        arguments = (DTYPES.index(dtype), *shape, pivot, a, pivots, infos)
        self._checked("lu_factor failed", "lu_factor", *arguments)

    def eigh_route(
        self,
        dtype: str,
        batch: int,
        n: int,
        *,
        vectors: bool = True,
        preference: str = "default",
        lanes: int = 4,
        batched: bool = True,
        capturing: bool = False,
    ) -> str:
        """The route that eigh, or eigvalsh without ``vectors``, would choose; ``batched``: cuSOLVER
        has XsyevBatched.
        """
        number = self.call(
            "eigh_route",
            DTYPES.index(dtype),
            batch,
            n,
            vectors,
            PREFERENCES.index(preference),
            lanes,
            batched,
            capturing,
        )
        return str(self.call("route_name", number).decode())

    def loop_route(self, question: LoopQuestion) -> str:
        """The route that an operation of LOOP_OPS would choose."""
        number = self.call("loop_route", ctypes.byref(question.raw()))
        return str(self.call("route_name", number).decode())

    def loop_measured(self, op: str) -> bool:
        """Whether an operation of LOOP_OPS leaves torch's own function anywhere."""
        return bool(self.call("loop_measured", LOOP_OPS.index(op)))

    def eigh_workspace(self, mib: int = -1) -> int:
        """MiB of workspace that a batched routine may take per call; sets it if not negative."""
        return int(self.call("eigh_workspace", mib))

    def eigh(
        self,
        dtype: str,
        shape: tuple[int, int],
        a: int,
        values: int,
        infos: int,
        *,
        upper: bool = False,
        vectors: bool = True,
        unmarked: bool = False,
    ) -> None:
        """Eigenvalues, and eigenvectors in place, of (batch, n) column-major matrices given by
        device addresses, on the current stream; ``unmarked``: without the look for NaN in
        front of syevjBatched. For
        measurements and tests of what torch's function hides behind its error check.
        """
        arguments = (DTYPES.index(dtype), *shape, upper, vectors, unmarked, a, values, infos)
        self._checked("eigh failed", "eigh", *arguments)

    def counts(self) -> dict[tuple[str, str], int]:
        """Calls since the library was loaded, by operation and route, without zeros."""
        found = {
            (op, route): int(self.call("count", OPS.index(op), number))
            for op in OPS
            for route, number in self.routes().items()
        }
        return {key: number for key, number in found.items() if number}

    def set_log(self, function: Callable[..., Any] | None, level: int) -> None:
        """Set the hook for single calls, a LOG_FUNCTION that the caller keeps alive."""
        pointer = None if function is None else ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]
        self.call("set_log", pointer, level)

    def take_profile(self, capacity: int) -> tuple[list[Call], int]:
        """The calls kept since profile_start, in order, and how many were not kept."""
        raw = (RawCall * capacity)()
        dropped = _I64()
        count = self.call("profile_take", raw, capacity, ctypes.byref(dropped))
        names = {number: name for name, number in self.routes().items()}
        return [call_of(raw[i], names) for i in range(min(count, capacity))], dropped.value


def call_of(raw: RawCall, names: dict[int, str]) -> Call:
    """A call in words; ``names`` are those of the routes."""
    return Call(
        op=OPS[raw.op],
        dtype=DTYPES[raw.dtype],
        batch=raw.batch,
        m=raw.m,
        n=raw.n,
        nrhs=raw.nrhs,
        pivot=bool(raw.pivot),
        preference=PREFERENCES[raw.preference],
        route=names[raw.route],
        wanted=names[raw.wanted],
        reason=raw.reason.decode() if raw.reason else "",
        lanes=raw.lanes,
        capturing=None if raw.capturing < 0 else bool(raw.capturing),
        ms=None if raw.ms < 0 else raw.ms,
    )


def _encode(path: Path | None) -> bytes | None:
    return None if path is None else str(path).encode()


def _ops_of(bits: int) -> tuple[str, ...]:
    return tuple(op for op, bit in ENTRY_BITS.items() if bits & bit)


def cache_folder(torch: _abi.TorchBuild) -> Path:
    """Where `aten-overrides build` keeps the library for this torch unless told otherwise."""
    key = f"torch-{torch.version}-{torch.git[:10]}-abi{int(torch.cxx11_abi)}-{torch.machine}"
    return cache_dir() / "gpu" / key


def find_library(torch: _abi.TorchBuild) -> tuple[Path, _abi.BuildFacts]:
    """The library to load into this torch: the package's own, else the cache's.

    UserError that says for what the libraries there are were built, if none fits.
    """
    reasons: list[str] = []
    for folder in (PACKAGE_FOLDER, cache_folder(torch)):
        library = folder / _abi.LIBRARY
        if not library.exists() and not _abi.facts_path(library).exists():
            continue
        try:
            return library, _abi.check_library(library, torch)
        except UserError as error:
            reasons.append(str(error))
    if not reasons:
        reasons.append(
            f"there is no gpu library for {torch}, neither in {PACKAGE_FOLDER} nor in "
            f"{cache_folder(torch)}; run `{_abi.BUILD_COMMAND}`"
        )
    raise UserError("; ".join(reasons))
