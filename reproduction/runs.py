"""Identifies runs by what determines their result, and finds them in a folder.

Two runs are the same if their resolved specs and seeds are equal, except for keys that change no
parameter, no payload byte and no accuracy: names and labels, the engine, the devices' runtime, image
and limits, the capture of traffic, the interval of checkpoints. Under the virtual clock such runs are
equal to the bit, so that a figure may take either, and one run may serve two figures.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from reproduction.series import Scale, Series, load_run
from testbed.errors import SpecError
from testbed.experiment.load import load_resolved
from testbed.experiment.spec import Spec
from testbed.results.reading.finding import find
from testbed.results.reading.run import Run

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
class Wanted:
    """A run that has to exist.

    Attributes:
        spec: a resolved spec with one algorithm.
        series: the first line that needs the run; others may need it too.
        identity: the spec's identity.
    """

    spec: Spec
    series: Series
    identity: Identity

    @property
    def title(self) -> str:
        """The name that is shown."""
        return f"{self.spec.name}/{self.series.label}, seed {self.spec.seed}"


def wanted(series: Iterable[Series], scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    """Return the runs that lines need, each once, seed after seed.

    Raises:
        SpecError: an experiment file cannot be used.
    """
    lines = tuple(series)
    found: dict[Identity, Wanted] = {}
    for seed in seeds:
        for one in lines:
            spec = load_run(one, scale, seed)
            key = identity(spec)
            found.setdefault(key, Wanted(spec, one, key))
    return list(found.values())


class Folder:
    """The runs in a folder, by identity, without those whose spec cannot be read."""

    def __init__(self, runs_root: Path) -> None:
        self._runs: dict[Identity, list[Run]] = defaultdict(list)
        self.all: list[tuple[Spec, Run]] = []
        for execution in find(runs_root):
            for run in execution.runs:
                try:
                    spec = load_resolved(run.directory / "spec.yaml")
                except SpecError:  # killed before it was written, or of a later version
                    continue
                if len(spec.algorithms) == 1:
                    self.all.append((spec, run))
                    self._runs[identity(spec)].append(run)

    def complete(self, key: Identity) -> list[Run]:
        """Return the complete runs, emulations first, the newest of each kind first."""
        runs = [run for run in reversed(self._runs[key]) if run.ended == "completed"]
        return sorted(runs, key=lambda run: run.manifest.engine != "emulation")

    def serves(self, key: Identity, engine: str) -> bool:
        """Return True if a complete run serves; an emulation's engine needs measured wire bytes."""
        complete = self.complete(key)
        emulated = any(run.manifest.engine == "emulation" for run in complete)
        return emulated or (bool(complete) and engine == "simulation")

    def begun(self, key: Identity, engine: str) -> Run | None:
        """Return the newest incomplete run on this kind of engine, or None."""
        kind = "simulation" if engine == "simulation" else "emulation"
        runs = [run for run in reversed(self._runs[key]) if run.manifest.engine == kind]
        return next((run for run in runs if run.ended != "completed"), None)
