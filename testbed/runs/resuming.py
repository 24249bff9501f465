"""Resume a run that ended early: from its last checkpoint, in its own run directory.

What the run wrote after the checkpoint is cut off and produced again; under the virtual clock it is the
same. Nothing is cut off before the manifest says that the run is going again, and a resumption may be
killed at any moment: the run can always be resumed once more.
"""

import fcntl
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from testbed.checkpoints.checkpoint_marks import NAME as MARKS
from testbed.checkpoints.checkpoint_marks import Mark, Marks, latest
from testbed.checkpoints.files import CheckpointFiles
from testbed.checkpoints.state_file import StateFile
from testbed.checkpoints.stateful import State
from testbed.code_digest import package_digest
from testbed.device_names import server_place, worker_name
from testbed.errors import SpecError
from testbed.experiment.load import load_any_resolved, load_resolved
from testbed.experiment.plugin_code import plugin_digests
from testbed.number_text import as_number
from testbed.planning.plan import Plan, plan
from testbed.planning.plans import AnyPlan, plans_of
from testbed.results.reading.journals import read_columns, whole
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_endings import is_complete
from testbed.runs.versions import host, versions
from testbed.telemetry.evaluation_log import CURVE_COLUMNS
from testbed.telemetry.run_log import COUNTER_COLUMNS, ENERGY_COLUMNS, Kept
from testbed.telemetry.update_rows import UPDATE
from testbed.untrusted_text import open_file, parse_json, read_file

_BEFORE_MANIFEST = (".reserve", "spec.yaml", "manifest.partial")
"""The files that a run writes before it has a manifest."""
FOLDER = "checkpoints"
"""The folder of a run directory that holds its checkpoints until the run is complete."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """The state that a resumed run begins with.

    Attributes:
        kept: the part of its run directory that is kept.
        state: the state in the checkpoint; None if the run begins anew.
        marks: the marks of the checkpoints, one of each server or one of all; none for a simulation, or
            if the run begins anew.
        files: the files of the checkpoints: of the simulation, or of each server; may be none.
        host_seconds: seconds of the host's clock that all earlier sessions trained.
        lock: descriptor that keeps other processes from resuming the same run.
    """

    kept: Kept
    state: State | None
    marks: Sequence[Mark]
    files: Sequence[CheckpointFiles]
    host_seconds: float
    lock: int

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of records of each kind before the checkpoint; empty if the run begins anew."""
        found: Mapping[str, int] = (self.state or {}).get("counts", {})
        return found

    def close(self) -> None:
        """Close the checkpoints' files, and let other processes resume the run."""
        for one in self.files:
            one.close()
        os.close(self.lock)

    @property
    def told(self) -> str:
        """The text of the event by which the run log reports the resumption."""
        damaged = sum(one.damaged for one in self.files)
        more = f"; {as_number(damaged, 'other checkpoint')} cannot be read" if damaged else ""
        if self.state is None:
            return f"resumed from the beginning: there is no checkpoint{more}"
        if len(self.marks) > 1:
            versions_of_each = ", ".join(f"{mark.version:,}" for mark in self.marks)
            of_each = f"{versions_of_each}, of one server each"
            return f"resumed from the checkpoints of updates {of_each}{more}"
        return f"resumed from the checkpoint of update {self.state['version']:,}{more}"

    def put_traffic_aside(self, directory: Path) -> None:
        """Make room for the capture and the ledgers of the new session.

        Files of the earlier sessions move to a folder of their own, ``traffic/earlier-N``.
        """
        folder = directory / "traffic"
        # A run that was killed right after its start has no such folder.
        earlier = [path for path in folder.glob("*") if not path.name.startswith("earlier")]
        if earlier:
            aside = folder / f"earlier-{len(self.kept.manifest.get('resumed', ())) + 1}"
            aside.mkdir(exist_ok=True)
            for path in earlier:
                path.replace(aside / path.name)


def folders(folder: Path, servers: Sequence[str]) -> list[Path]:
    """Return the folders of the checkpoints of each server, in the folder of a run's checkpoints."""
    return [folder / name for name in servers] if len(servers) > 1 else [folder] * len(servers)


@dataclass(frozen=True, slots=True)
class RunJob:
    """A run to begin or to resume.

    Attributes:
        ended: the run that ended early; None if it is to begin.
    """

    plan: AnyPlan
    ended: RecordedRun | None = None


def left(found: Sequence[RecordedRun], whole: bool) -> list[RunJob]:
    """Return the runs of an execution that are still to be carried out.

    Args:
        found: the existing runs that are asked for, at least one.
        whole: whether runs that were never begun are asked for, too.

    Raises:
        SpecError: nothing is left, or a run cannot be resumed.
    """
    directory = found[0].directory.parent
    for run in found:
        _check_owner(run.directory)
    jobs = [RunJob(_check(run), run) for run in found if not is_complete(run.ended)]
    if whole:
        if not (directory / "experiment.yaml").exists():
            raise SpecError(
                f"{directory} has runs of no single experiment: `testbed sweep FILE` goes on with a "
                "sweep, and `testbed resume` with one of its runs"
            )
        jobs += never_begun(directory)
    if not jobs:
        what = found[0].id if not whole else "/".join(directory.parts[-2:])
        raise SpecError(f"{what} is complete: there is nothing to resume")
    return jobs


def never_begun(directory: Path) -> list[RunJob]:
    """Return the runs of an execution that have no manifest, with which a run begins.

    Raises:
        SpecError: the execution's experiment file cannot be read, or it is another user's.
    """
    _check_owner(directory)
    spec = load_any_resolved(directory / "experiment.yaml")
    return [
        RunJob(one)
        for one in plans_of(spec)
        if not os.path.lexists(directory / one.label / "manifest.json")
    ]


def clear(directory: Path) -> None:
    """Remove what a run left that was killed before it had a manifest; do nothing without a directory.

    Raises:
        SpecError: there is something else in it.
    """
    try:
        for name in _BEFORE_MANIFEST:
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise SpecError(
            f"{directory} has no manifest.json, and other files than a run begins with: remove it, and "
            "the run begins anew"
        ) from error


def _check_owner(directory: Path) -> None:
    owner = directory.stat().st_uid
    if owner != os.geteuid():
        raise SpecError(f"{directory} belongs to user {owner}: resume it as that user")


def _check(run: RecordedRun) -> Plan:
    """Return the plan of a run that is not complete; raise SpecError if it cannot be resumed."""
    if run.ended == "running":
        raise SpecError(f"{run.id} is still running, as process {run.manifest.pid}")
    if run.manifest.programs:
        raise SpecError(
            f"{run.id} is of programs, whose state the testbed does not know: run its file again"
        )
    written_by = _manifest(run)
    if written_by.get("code") != package_digest():
        commit = written_by.get("commit")
        by = f"testbed {run.manifest.versions.get('testbed', 'of another version')}" + (
            f", commit {commit}" if commit else ""
        )
        raise SpecError(
            f"{run.id} was written by other code than this ({by}): resume it with that, or run it anew"
        )
    here = versions()
    for name, version in run.manifest.versions.items():
        if here.get(name) != version:
            raise SpecError(
                f"{run.id} was written with {name} {version}, and here is {here.get(name, 'none')}: "
                "resume it with that, or run it anew"
            )
    begun_on, here_is = run.manifest.host.cpu, host()["cpu"]
    if run.manifest.clock == "virtual" and begun_on not in (None, here_is):
        # Libraries choose their instructions, and so the rounding of sums, by the processor.
        raise SpecError(
            f"{run.id} was begun on a processor {begun_on}, and here is {here_is}, which may round "
            "otherwise: resume it there, or run it anew"
        )
    spec = load_resolved(run.directory / "spec.yaml")
    for module, digest in plugin_digests(spec).items():
        if written_by.get("plugins", {}).get(module) != digest:
            raise SpecError(
                f"{run.id} was begun with other code of the plug-in {module} than is installed here: "
                "resume it with that, or run it anew"
            )
    (one,) = plan(spec)
    if written_by.get("data") != one.settings.dataset_digest:
        raise SpecError(
            f"{run.id} was begun with other data than {spec.dataset.name} returns here: resume it with "
            "those, or run it anew"
        )
    return one


def prepare(run: RecordedRun, types: Collection[type]) -> Resumption:
    """Find the checkpoint from which a run that ``left`` has checked is resumed, and what it keeps.

    Args:
        types: the classes whose objects its checkpoints may hold.

    Raises:
        SpecError: the run is being resumed already, or what it kept is damaged.
    """
    lock = os.open(run.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with ExitStack() as opened:
        opened.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SpecError(f"{run.id} is being resumed by another process already") from None
        with whole(run.directory / FOLDER):
            files = [
                opened.enter_context(CheckpointFiles.open(folder, types))
                for folder in _existing(run.directory / FOLDER)
            ]
            found = _read(run, files, lock)
        opened.pop_all()  # from here on the resumption closes them
        return found


def _existing(folder: Path) -> list[Path]:
    """Return the folders of a run's checkpoints: the run's, or one of each of several servers."""
    if not folder.is_dir():
        return []
    of_servers = [path for path in folder.iterdir() if path.is_dir()]
    return sorted(of_servers, key=lambda path: server_place(path.name)) or [folder]


def _read(run: RecordedRun, files: Sequence[CheckpointFiles], lock: int) -> Resumption:
    updates = read_columns(run.directory, "updates", UPDATE.names or ())
    evaluations = read_columns(
        run.directory, "evaluations", (*CURVE_COLUMNS, *run.manifest.evaluated)
    )
    declared = [one.name for one in run.manifest.diagnostics]
    diagnostics = read_columns(run.directory, "diagnostics", ["iteration", *declared])
    diagnosed = diagnostics.num_rows if declared else math.inf
    faults = _lines(run.directory / "faults.jsonl")
    there = {
        "updates": updates.num_rows,
        "evaluations": evaluations.num_rows,
        "faults": len(faults),
    }
    state, marks = None, list[Mark]()
    emulated = run.manifest.engine == "emulation"
    if files and emulated:
        state, marks = _of_servers(run, files, there, diagnosed)
    elif files:
        # A host that crashed may have lost rows that a checkpoint has already counted.
        state = files[0].newest(
            lambda one: (
                one["version"] <= diagnosed and all(one["counts"][n] <= there[n] for n in there)
            )
        )
    counts = dict.fromkeys(there, 0)
    if marks:
        # A version of which an evaluation is on record is not evaluated again.
        newest = max(mark.version for mark in marks)
        evaluations = evaluations.filter(pc.less_equal(evaluations["iteration"], newest))
        updates = updates.filter(_before(marks, updates))
        counts |= {
            "updates": len(updates),
            "evaluations": len(evaluations),
            "faults": latest(marks).faults,
        }
    elif state is not None:
        counts |= state["counts"]
    manifest = _manifest(run)
    seconds = latest(marks).time if marks else _host_seconds(updates, manifest)
    version = state["version"] if state else 0
    counters = read_columns(run.directory / "traffic", "counters", COUNTER_COLUMNS)
    tables = {
        "updates": updates.slice(0, counts["updates"]),
        "diagnostics": diagnostics.slice(0, version),
        "evaluations": evaluations.slice(0, counts["evaluations"]),
        "counters": counters.slice(0, 0 if emulated else None),
    }
    if (energy := _energy(run)) is not None:
        tables["energy"] = energy.slice(0, 0)
        if energy.num_rows and tables["evaluations"].num_rows:
            last = pc.max(tables["evaluations"]["time"])
            tables["energy"] = energy.filter(pc.less_equal(energy["time"], last))
    resumed = {"version": version, "host_seconds": seconds}
    kept = Kept(manifest, tables, faults[: counts["faults"]], resumed)
    return Resumption(kept, state, marks, files, seconds, lock)


def _energy(run: RecordedRun) -> pa.Table | None:
    """Return the energies on record; None if the run has none."""
    return read_columns(run.directory, "energy", ENERGY_COLUMNS) if run.manifest.energy else None


def _before(marks: Sequence[Mark], updates: pa.Table) -> pa.Array:
    """Return the rows of updates that come before their server's mark."""
    limits = np.array([mark.updates for mark in marks for _ in mark.wire_bytes])
    return pa.array(np.arange(len(updates)) < limits[updates["server"].to_numpy()])


def _of_servers(
    run: RecordedRun, files: Sequence[CheckpointFiles], there: Mapping[str, int], diagnosed: float
) -> tuple[State | None, list[Mark]]:
    """Return the (first) server's checkpoint and each server's mark; nothing if any has none.

    Each of several servers goes on from its own last checkpoint. They are in step only as far as their
    workers keep them there: there may be no version of which all have one, and their ledgers are apart.
    """
    states: list[State] = []
    marks: list[Mark] = []
    for one, folder in zip(files, _existing(run.directory / FOLDER), strict=True):
        # The diagnostics on record are the first server's.
        limit, remembered = math.inf if marks else diagnosed, partial(_is_remembered, folder)
        state, mark = _emulated(one, _marks(run, folder), there, limit, remembered)
        if state is None or mark is None:
            return None, []
        states.append(state)
        marks.append(mark)
    return states[0], marks


def _is_remembered(folder: Path, state: State) -> bool:
    """Return True if what workers remembered at a checkpoint is intact, in their files.

    The files of workers on other hosts are there.
    """
    for number, needed in state["kept"][-1].items() if "kept" in state else ():
        try:
            descriptor = open_file(folder / worker_name(number))
        except OSError:
            return False
        found = StateFile(descriptor).numbers
        os.close(descriptor)
        if needed not in found:
            return False
    return True


def _marks(run: RecordedRun, folder: Path) -> Marks:
    try:
        return Marks.load(folder)
    except ValueError:  # the host crashed
        raise SpecError(
            f"{folder / MARKS} is damaged, and nothing else says how far {run.id} was at a checkpoint: "
            f"remove {run.directory / FOLDER}, and it begins anew"
        ) from None


def _emulated(
    files: CheckpointFiles,
    marks: Marks,
    there: Mapping[str, int],
    diagnosed: float,
    remembered: Callable[[State], bool],
) -> tuple[State | None, Mark | None]:
    """Return the newest checkpoint of an emulation that has a mark, and the mark.

    Args:
        remembered: returns True if what workers remembered at a checkpoint is there.
    """

    def fits(state: State) -> bool:
        mark = marks.of(state["version"])
        return (
            mark is not None
            and state["version"] <= diagnosed
            and mark.updates <= there["updates"]
            and mark.faults <= there["faults"]
            and remembered(state)
        )

    state = files.newest(fits)
    if state is None:
        return None, None
    # The server reads the rest, whole models, by itself.
    needed = {name: state[name] for name in ("version", "counts") if name in state}
    return needed, marks.of(state["version"])


def _lines(path: Path) -> list[str]:
    """Return the complete lines of a file; empty if there is no file."""
    try:
        with whole(path):
            return read_file(path).decode().split("\n")[:-1]
    except FileNotFoundError:
        return []


def _manifest(run: RecordedRun) -> dict[str, Any]:
    path = run.directory / "manifest.json"
    with whole(path):
        content: dict[str, Any] = parse_json(read_file(path))
        return content


def _host_seconds(updates: pa.Table, manifest: Mapping[str, Any]) -> float:
    """Return the host's seconds of all sessions so far, as far as recorded, lost updates included."""
    known = [float(one["host_seconds"]) for one in manifest.get("resumed", ())]
    if updates.num_rows:
        known.append(float(updates.column("host_time")[-1].as_py()))
    return max(known, default=0.0)
