"""The runs that a sweep needs, each once, and the directories in which they are found again.

A run is identified by its resolved spec, but for the number of processors that it computes on, and the
code that carries it out. Its directory's name ends with the beginning of a digest of both, so that a
sweep that is started again, or to which values were added, finds the runs that exist, and never takes
one with other settings or made by other code.
"""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic

from testbed.code_digest import package_digest
from testbed.experiment.combinations import S_co, Sweep, T, Values, by_algorithm, describe, text_of
from testbed.experiment.load import AnySpec
from testbed.experiment.spec import Spec

FOLDER = "sweep"
"""The folder of a sweep's runs, in that of the experiment."""


@dataclass(frozen=True, slots=True)
class Wanted(Generic[S_co]):
    """A run that has to exist.

    Attributes:
        spec: a resolved spec of one run.
        algorithm: the algorithm's name in tables and figures, the same for all values of its options.
        points: the combinations that it serves; several if a swept key has no effect on it.
    """

    spec: S_co
    algorithm: str
    points: tuple[Values, ...]
    directory: Path
    title: str

    @property
    def label(self) -> str:
        """The algorithm's label."""
        ((_, label, _),) = by_algorithm(self.spec)
        return label


def wanted(sweep: Sweep[T], runs_root: Path) -> list[Wanted[T]]:
    """Return the runs of a sweep, each once, in the order of its combinations."""
    folder = runs_root.absolute() / sweep.name / FOLDER
    code = package_digest()
    found: dict[str, Wanted[T]] = {}
    for point in sweep.points:
        for name, label, spec in by_algorithm(point.spec):
            text = json.dumps(_on_any_processors(spec).model_dump(mode="json"))
            known = found.get(text)
            if known is not None:
                found[text] = replace(known, points=(*known.points, point.values))
                continue
            digest = hashlib.sha256(f"{code}\n{text}".encode()).hexdigest()
            directory = folder / _name(label, point.values, digest)
            title = f"{name}, {describe(point.values, name)}"
            found[text] = Wanted(spec, name, (point.values,), directory, title)
    return list(found.values())


def _on_any_processors(spec: AnySpec) -> AnySpec:
    """Return a spec that is the same for runs with the same results."""
    if not isinstance(spec, Spec):
        return spec
    simulation = spec.simulation.model_copy(update={"processors": None})
    return spec.model_copy(update={"simulation": simulation})


def _name(label: str, values: Values, digest: str) -> str:
    """Return a directory's name: the label, the values that it does not have, and a digest."""
    parts = [
        f"{key.rpartition('.')[2]}-{text_of(value)}"
        for key, value in values.items()
        if not key.startswith("algorithms.")
    ]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", ".".join([label, *parts]))[:100]
    return f"{readable}.{digest[:10]}"
