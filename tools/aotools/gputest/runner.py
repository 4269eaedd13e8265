"""Runs jobs one after the other, each in a child process of its own, and files their rows in the
record.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from aotools.env import ROOT, UserError
from aotools.gputest.child import NO_GPU
from aotools.gputest.libraries import Library
from aotools.gputest.plan import STOCK, Job
from aotools.gputest.processes import descendants, kill
from aotools.gputest.record import Record, Row

START_S = 15.0  # the least time left in which a job is worth starting
TOGETHER = 4  # jobs that only check, at once
CHILD = "aotools.gputest.child"
NOT_RUN = "not run"

# What a user's shell may hold and what would change what is measured.
_CLEARED = (
    "ATEN_OVERRIDES",
    "ATEN_OVERRIDES_LOG",
    "ATEN_OVERRIDES_PREFER",
    "ATEN_OVERRIDES_STREAMS",
    "ATEN_OVERRIDES_TABLE",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_LINALG_PREFER_CUBLAS",
    "TORCH_LINALG_PREFER_CUSOLVER",
    "TORCH_LINALG_STREAMS",
    "TORCH_LINALG_STREAMS_MEMORY_MIB",
    "NVIDIA_TF32_OVERRIDE",
    "CUDA_LAUNCH_BLOCKING",
)

_running: set[subprocess.Popen[bytes]] = set()


@dataclass
class Outcome:
    """What became of a child: "done", "timed out", "crashed", "no gpu" or "not run"; its rows; the
    end of its output.
    """

    state: str
    rows: list[Row]
    seconds: float
    reason: str = ""


def child_environment(base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: the user's without what would change the measurement, and the
    job's own.
    """
    env = {key: value for key, value in base.items() if key not in _CLEARED}
    return env | {"PYTHONUNBUFFERED": "1", "TORCH_SHOW_CPP_STACKTRACES": "0"} | dict(extra)


def read_rows(path: Path) -> tuple[list[Row], bool]:
    """The rows that a child wrote, and whether its last one says that it came to the end."""
    rows: list[Row] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:  # cut off in the middle by a crash
                continue
    ended = bool(rows) and rows[-1].get("end") is True
    return [row for row in rows if "end" not in row], ended


def run_child(job: Job, paths: Mapping[str, Path], timeout: float, log: Path) -> Outcome:
    """Runs a job's child with the libraries at `paths`; its output is appended to `log`.

    Never raises for what the child does.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as name:
        file, out = Path(name) / "job.json", Path(name) / "rows.jsonl"
        output = Path(name) / "output.txt"
        description = {
            "function": job.function,
            "folder": job.folder,
            "library": job.library,
            "options": dict(job.options),
            "paths": {name: str(path) for name, path in paths.items()},
            "timeout": timeout,
        }
        file.write_text(json.dumps(description), encoding="utf-8")
        command = [sys.executable, "-m", CHILD, str(file), str(out)]
        with output.open("wb") as sink:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=child_environment(os.environ, job.environment),
                start_new_session=True,  # so that a time-out ends its children too
            )
            _running.add(child)
            try:
                code: int | None = child.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _running.discard(child)
                if child.poll() is None:
                    _end_group(child)
                else:  # what it left behind would disturb the next measurement
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
        rows, ended = read_rows(out)
        text = output.read_text(encoding="utf-8", errors="replace")
    seconds = time.monotonic() - started
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as sink_text:
        sink_text.write(f"==== {job.title} code {code}, {seconds:.1f} s\n{text}\n")
    tail = text.strip()[-600:]
    if code == NO_GPU:
        return Outcome("no gpu", rows, seconds, tail)
    if code is None:
        return Outcome("timed out", rows, seconds, f"ended after {timeout:.0f} s. {tail}".strip())
    if code != 0 or not ended:
        what = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return Outcome("crashed", rows, seconds, f"{what}. {tail}".strip())
    return Outcome("done", rows, seconds)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Ends a child and all that it started: politely, then not."""
    started = descendants(child.pid)  # some may have left the group
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 20.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
    kill(started)


def parse_gpus(text: str) -> list[str]:
    """The GPUs in a comma list, as CUDA_VISIBLE_DEVICES names them; UserError for a list that
    names one twice or leaves a gap.
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if not all(names) or len(set(names)) != len(names):
        raise UserError(
            f"--gpus {text}: a comma list of different GPUs is needed, as CUDA_VISIBLE_DEVICES "
            "takes it: 0,1"
        )
    return names


def probe(log: Path, gpus: Sequence[str] = ()) -> Row:
    """The machine's meta data; UserError when there is no NVIDIA GPU that torch can use, or when
    the GPUs named are not all there and of one model.
    """
    done = run_child(
        Job("probe", "machine", STOCK, "part_probe:run", 15, 180, {}, _environments(gpus)[0]),
        {},
        180,
        log,
    )
    for row in done.rows:
        if "meta" in row:
            meta: Row = row["meta"]
            models = meta.pop("visible_gpus", [meta.get("gpu")])
            if gpus and (len(models) != len(gpus) or len(set(models)) != 1):
                raise UserError(
                    f"--gpus {','.join(gpus)}: torch sees {', '.join(models)}. Jobs are spread "
                    "over GPUs of one model only: name those that are there and alike"
                )
            return meta | ({"gpus_used": len(gpus)} if gpus else {})
    said = done.reason.splitlines()[-1] if done.reason else done.state
    raise UserError(
        f"gpu-test needs an NVIDIA GPU and a torch with CUDA that sees it: {said} (interpreter "
        f"{sys.executable}; another one: PYTHON=/path/to/python). --dry-run shows what would run"
    )


def run_jobs(
    record: Record,
    jobs: Sequence[Job],
    libraries: Mapping[str, Library],
    *,
    budget: float,
    log: Path,
    again: bool = False,
    gpus: Sequence[str] = (),
) -> bool:
    """Runs what the record does not have yet, as long as the `budget` (seconds) lasts.

    A job that times something has its GPU for itself; neighbours that only check run together.
    `gpus`: the GPUs to spread the jobs over, as CUDA_VISIBLE_DEVICES names them; without any, jobs
    see what this process sees. True when all is done.
    """
    started = time.monotonic()
    places = [Place(environment) for environment in _environments(gpus)]
    key = {job.title: job.key(fingerprint(libraries)) for job in jobs}
    complete = True

    def left() -> float:
        return budget - (time.monotonic() - started)

    def child(job: Job, place: Place) -> Outcome:
        if left() < START_S:  # less than when it was chosen
            return Outcome(NOT_RUN, [], 0.0, f"{max(0, left()):.0f} s are left of the budget")
        names = (job.library, *job.also)
        paths = {name: libraries[name].path for name in names if name in libraries}
        seen = replace(job, environment={**place.environment, **job.environment})
        return run_child(seen, paths, min(job.timeout, left()), log)

    pending: list[Job] = []
    for group in groups(jobs):
        for job in sorted(group, key=lambda job: -job.seconds):
            if again or not record.finished(job.title, key[job.title]):
                pending.append(job)
            else:
                print(f"-- {job.title}: in the record already", flush=True)
    running: dict[Future[Outcome], tuple[Job, Place]] = {}
    with ThreadPoolExecutor(TOGETHER * len(places)) as pool:
        try:
            while pending or running:
                while pending and (place := free_place(places, pending[0])) is not None:
                    if left() < START_S:
                        break
                    job = pending.pop(0)
                    place.running.append(job)
                    running[pool.submit(child, job, place)] = (job, place)
                if pending and left() < START_S:
                    names = ", ".join(job.title for job in pending)
                    said = f"{max(0, left()):.0f} s are left of the budget"
                    print(f"-- not run, {said}: {names}", flush=True)
                    complete = False
                    pending.clear()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, place = running.pop(future)
                    place.running.remove(job)
                    done = future.result()
                    _file(record, job, key[job.title], done)
                    complete = complete and done.state == "done"
        except BaseException:  # Ctrl-C: the pool would wait for the children
            pool.shutdown(wait=False, cancel_futures=True)
            for started_child in list(_running):
                _end_group(started_child)
            raise
    return complete


@dataclass
class Place:
    """A GPU, as the environment that makes it a child's first one, and what runs there."""

    environment: Mapping[str, str]
    running: list[Job] = field(default_factory=list)


def _environments(gpus: Sequence[str]) -> list[dict[str, str]]:
    """One environment for each GPU: that one first, the others behind it."""
    turned = [[*gpus[number:], *gpus[:number]] for number in range(len(gpus))]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(order)} for order in turned] or [{}]


def free_place(places: Sequence[Place], job: Job) -> Place | None:
    """The least busy place that may start the job now; None if it has to wait."""
    place = min(places, key=lambda place: (any(j.timed for j in place.running), len(place.running)))
    if job.timed:
        return None if place.running else place
    busy = any(other.timed for other in place.running) or len(place.running) >= TOGETHER
    return None if busy else place


def groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Splits the jobs, in order: timed ones alone, those that only check with neighbours."""
    made: list[list[Job]] = []
    for job in jobs:
        if made and not job.timed and not made[-1][-1].timed:
            made[-1].append(job)
        else:
            made.append([job])
    return made


def _file(record: Record, job: Job, key: str, done: Outcome) -> None:
    """Tells what became of a job and files its rows, unless better ones are there."""
    state = f"{done.state}, {len(done.rows)} rows, {done.seconds:.1f} s"
    print(f"-- {job.title}: {state}{': ' if done.reason else ''}{done.reason[-300:]}", flush=True)
    if done.state == NOT_RUN:
        return
    if done.state != "done" and record.finished(job.title, key):
        print(f"   the rows of {job.title} from before are kept", flush=True)
        return
    done = without_paths(done)
    entry: Row = {"state": done.state, "key": key, "seconds": round(done.seconds, 1)}
    entry["date"] = time.strftime("%Y-%m-%d", time.gmtime())
    if done.reason:
        entry["reason"] = done.reason
    record.put(job.title, [row for row in done.rows if "op" in row or "result" in row], entry)


def without_paths(done: Outcome) -> Outcome:
    """The outcome with this machine's folders as names: a record is for others."""
    folders = {str(ROOT): "<checkout>", sys.prefix: "<python>", tempfile.gettempdir(): "<tmp>"}
    text = json.dumps([done.rows, done.reason])
    for folder in sorted(folders, key=len, reverse=True):
        text = text.replace(json.dumps(folder)[1:-1] + "/", folders[folder] + "/")
    rows, reason = json.loads(text)
    return Outcome(done.state, rows, done.seconds, reason)


def fingerprint(libraries: Mapping[str, Library]) -> dict[str, str]:
    """The libraries' sha256 by name, as the record states them."""
    return {name: library.sha256 for name, library in sorted(libraries.items())}
