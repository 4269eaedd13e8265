"""Builds the batched LU for the simulated device: the kernels themselves, compiled as plain C++.

Usage: python build.py LIBRARY.so [KERNELS]

KERNELS: the folder of the sources, else the checkout's. Needs g++; the sources are translated into
a temporary folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parents[3] / "aten_overrides" / "csrc" / "linalg" / "native"
LAUNCH = re.compile(
    r"(?P<kernel>[\w:]+(?:<[\w<>, ]*>)?)<<<(?P<grid>.*?),(?P<threads>[^,]*),(?P<shared>[^,]*),"
    r"[^,]*?>>>\((?P<arguments>[^;]*)\);",
    re.DOTALL,
)
SHARED = re.compile(r"extern __shared__ __align__\(16\) unsigned char raw\[\];")
SIGNALS = {
    r"mbarrier\.init\.": "simulated_start_signal(at);",
    r"fence\.mbarrier_init": "",
    r"mbarrier\.arrive": "simulated_expect(at, bytes);",
    r"st\.async": "simulated_send(at, piece, rank, signal);",
    r"mbarrier\.try_wait": "done = simulated_await(at, use % 2);",
}


def translate(text: str) -> str:
    """Launches, shared memory and inline assembly in terms of the simulated device."""
    text = LAUNCH.sub(
        lambda found: (
            f"simulated_launch(simulated::address({found['kernel']}), "
            f"{found['grid']},{found['threads']},{found['shared']}, "
            f"[&] {{ {found['kernel']}({found['arguments']}); }});"
        ),
        text,
    )
    text = SHARED.sub("unsigned char* const raw = simulated_shared();", text)
    text = text.replace('asm volatile("" : "+r"(x));', "")
    text = re.sub(
        r'asm volatile\("bar\.sync (\d+), %0;" ::"n"\(([^;]*)\) : "memory"\);',
        r"simulated_barrier(\1, \2);",
        text,
    )
    for instruction, call in SIGNALS.items():
        statement = rf'asm volatile\(\s*"[^)]*?{instruction}.*?"memory"\);'
        text = re.sub(statement, call, text, flags=re.DOTALL)
    text = re.sub(r'asm\("rcp\.approx[^;]*f32[^;]*;[^;]*;', "estimate = ESTIMATE;", text)
    text = re.sub(r'asm\("rcp\.approx\.ftz\.f64[^;]*;[^;]*;', "estimate = 1.0 / x;", text)
    text = text.replace("estimate = ESTIMATE;", "estimate = 1.0f / static_cast<float>(x);")
    return re.sub(
        r'asm\("\{ \.reg \.pred p;.*?"[fd]"\(b\)\);',
        "if (active != 0) { c = subtract_product(c, a, b); }",
        text,
        flags=re.DOTALL,
    )


def build(library: Path, kernels: Path = KERNELS) -> None:
    """Translate all sources of `kernels` and compile them into `library`."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "ATen" / "native" / "cuda" / "linalg" / "native"
        root.mkdir(parents=True)
        sources = [*sorted(HERE.parent.glob("*_entry.cpp")), HERE / "interrupt.cpp"]
        for path in kernels.iterdir():
            if path.suffix not in {".cu", ".cuh", ".h", ".cpp"}:
                continue
            target = root / (path.name + ".cpp" if path.suffix == ".cu" else path.name)
            target.write_text(translate(path.read_text()))
            if target.suffix == ".cpp":
                sources.append(target)
        flags = ["-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-fPIC", "-shared"]
        include = [f"-I{HERE}", f"-I{name}"]
        define = ["-DBATCHED_NATIVE_NO_TORCH", "-Wno-unknown-pragmas"]
        subprocess.run(
            ["g++", *flags, *define, *include, *map(str, sources), "-o", str(library)], check=True
        )


if __name__ == "__main__":
    build(*map(Path, sys.argv[1:]))
