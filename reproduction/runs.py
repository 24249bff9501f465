"""The runs that lines need, and which runs of a folder serve them.

Two runs are the same if their resolved specs and seeds are equal, except for keys that change no
parameter, no payload byte and no accuracy: names and labels, the engine, the devices' runtime, image
and limits, the capture of traffic, the interval of checkpoints. Under the virtual clock such runs are
equal to the bit, so that a figure may take either, and one run may serve two figures.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from reproduction.series import Scale, Series, Study
from testbed.errors import SpecError
from testbed.experiment.combinations import describe
from testbed.experiment.load import load_resolved
from testbed.experiment.spec import Spec
from testbed.results.reading.finding import find
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_endings import is_kept
from testbed.sweeps.needed_runs import Wanted, wanted

Identity: TypeAlias = str
_OF_NO_EFFECT = ("name", "engine", "traffic", "checkpoints")
_OF_NO_EFFECT_ON_DEVICES = ("runtime", "launch", "image", "cpus", "memory")


def identity(spec: Spec) -> Identity:
    """Return the key that a spec of one run shares with every other that has the same result."""
    (algorithm,) = spec.algorithms
    data: dict[str, Any] = spec.model_dump(mode="json")
    for key in _OF_NO_EFFECT:
        data.pop(key, None)
    for key in _OF_NO_EFFECT_ON_DEVICES:
        data["devices"].pop(key, None)
    data["simulation"].pop("processors", None)
    for one in data["devices"].get("classes") or ():
        for key in ("cpus", "memory"):
            one.pop(key, None)
    # The spec has the values that the algorithm's entry leaves open.
    choice = {
        "label": None,
        "encoding": (algorithm.encoding or spec.encoding).model_dump(mode="json"),
        "pulls": algorithm.pulls or spec.pulls,
        "learning_rate": algorithm.learning_rate or spec.training.learning_rate,
    }
    data["algorithms"] = [data["algorithms"][0] | choice]
    del data["encoding"], data["pulls"], data["training"]["learning_rate"]
    return json.dumps(data, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Needed:
    """The run of a line with a seed.

    Attributes:
        run: the run, as a sweep wants it.
        series: the line.
        seed: the seed.
        identity: that of the run's spec.
    """

    run: Wanted[Spec]
    series: Series
    seed: int
    identity: Identity


@dataclass(frozen=True, slots=True)
class Setting:
    """The size, the seeds and the engine of runs, and the folder that they are in.

    Attributes:
        engine: the ``--set`` options that choose the engine; empty if it does not matter.
    """

    scale: Scale
    seeds: tuple[int, ...]
    folder: Path = Path("runs")
    engine: tuple[str, ...] = ()

    def options(self, spec: Spec) -> Sequence[str]:
        """Return the ``--set`` options of the scale and the engine."""
        return (*self.scale.options(spec), *self.engine)


@dataclass(frozen=True, slots=True)
class _Known:
    """A run of a study, and what its spec has to be taken apart for.

    Attributes:
        label: the algorithm's.
        identity: that of the spec.
    """

    run: Wanted[Spec]
    label: str
    identity: Identity

    @classmethod
    def of(cls, run: Wanted[Spec]) -> "_Known":
        title = f"{run.spec.name}/{run.title}"
        return cls(replace(run, title=title), run.label, identity(run.spec))


class RunsOfLines:
    """The runs that lines need in a setting; those of a study are found once."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._of_study: list[tuple[Study, list[_Known]]] = []

    def of(self, series: Iterable[Series]) -> list[Needed]:
        """Return the run of each line with each seed, seed after seed; several may have one identity.

        Raises:
            SpecError: an experiment file cannot be used, or lacks a line's run.
        """
        found: dict[tuple[int, int], Needed] = {}
        for place, one in enumerate(series):
            runs = self._runs_of(one.study)
            for turn, seed in enumerate(self._setting.seeds):
                known = _of_line(one, seed, runs)
                found[turn, place] = Needed(known.run, one, seed, known.identity)
        return [found[key] for key in sorted(found)]

    def _runs_of(self, study: Study) -> list[_Known]:
        for known, runs in self._of_study:
            if known == study:
                return runs
        sweep = study.sweep(self._setting.seeds, self._setting.options)
        runs = list(map(_Known.of, wanted(sweep, self._setting.folder)))
        self._of_study.append((study, runs))
        return runs


def of_lines(series: Iterable[Series], setting: Setting) -> list[Needed]:
    """Return the runs of lines as ``RunsOfLines`` does."""
    return RunsOfLines(setting).of(series)


def _of_line(series: Series, seed: int, runs: Sequence[_Known]) -> _Known:
    """Return the run of a line with a seed."""
    values = {"seed": seed, **series.values}
    for known in runs:
        run = known.run
        if series.label in (run.algorithm, known.label) and values in map(dict, run.points):
            return known
    labels = ", ".join(dict.fromkeys(known.run.algorithm for known in runs))
    swept = f" with {describe(series.values)}" if series.values else ""
    raise SpecError(
        f"{series.study.experiment}: has no {series.label}{swept}, of which the line {series.name} "
        f"is: there are {labels}"
    )


def different(needed: Iterable[Needed]) -> list[Needed]:
    """Return runs of different identities: of those with one identity, the first."""
    found: dict[Identity, Needed] = {}
    for one in needed:
        found.setdefault(one.identity, one)
    return list(found.values())


class Folder:
    """The complete runs in a folder, by identity."""

    def __init__(self, runs_root: Path) -> None:
        self._runs: dict[Identity, list[RecordedRun]] = defaultdict(list)
        self.complete: list[tuple[Spec, RecordedRun]] = list(_complete(runs_root))
        for spec, run in self.complete:
            self._runs[identity(spec)].append(run)

    def of(self, key: Identity) -> list[RecordedRun]:
        """Return the runs of an identity, emulations first, the newest of each kind first."""
        newest_first = sorted(self._runs[key], key=lambda run: run.manifest.started, reverse=True)
        return sorted(newest_first, key=lambda run: run.manifest.engine != "emulation")

    def serves(self, key: Identity, engine: str) -> bool:
        """Return True if a run serves; an emulation's engine needs measured wire bytes."""
        runs = self.of(key)
        emulated = any(run.manifest.engine == "emulation" for run in runs)
        return emulated or (bool(runs) and engine == "simulation")


def _complete(runs_root: Path) -> Iterator[tuple[Spec, RecordedRun]]:
    for execution in find(runs_root):
        for run in execution.runs:
            if not is_kept(run.ended):
                continue
            try:
                spec = load_resolved(run.directory / "spec.yaml")
            except SpecError:  # written by a later version
                continue
            if len(spec.algorithms) == 1:
                yield spec, run
