"""Read an experiment file with a ``sweep`` section: a spec for every combination of the values.

Combinations are in the order of the file: the first key's value changes last, so that with ``seed``
first, all of one seed comes before the next. A key replaces the file's value as ``--set`` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast

import yaml
from pydantic import ValidationError

from testbed.errors import SpecError
from testbed.experiment import load
from testbed.experiment import overrides as replacing
from testbed.experiment.document import Document
from testbed.experiment.load import AnySpec
from testbed.experiment.overrides import Override
from testbed.experiment.problems import did_you_mean
from testbed.experiment.programs_spec import ProgramsSpec
from testbed.experiment.sections.sweep import SweepSpec
from testbed.experiment.spec import Spec

Values: TypeAlias = Mapping[str, Any]
"""The value of each swept key in one combination, as written in the file."""
_Replaced: TypeAlias = tuple[Any, list[Override], AnySpec]
"""A file's data with other values, the overrides that gave them, and the spec of these data."""


S_co = TypeVar("S_co", bound=AnySpec, covariant=True)
T = TypeVar("T", bound=AnySpec)


@dataclass(frozen=True, slots=True)
class Combination(Generic[S_co]):
    """One combination of values, and the experiment that has them."""

    values: Values
    spec: S_co


@dataclass(frozen=True, slots=True)
class Sweep(Generic[S_co]):
    """All experiments of a file with a ``sweep`` section.

    Attributes:
        keys: the swept keys, in the file's order, each with its values.
        points: the combinations that are not excluded, at least one.
    """

    keys: Mapping[str, tuple[Any, ...]]
    points: tuple[Combination[S_co], ...]

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.points[0].spec.name


def load_sweep(
    path: Path | str,
    overrides: Sequence[str | Override] = (),
    seed: int | None = None,
    scaled: Callable[[Spec], Sequence[str]] = lambda _: (),
) -> Sweep[Spec]:
    """Read an experiment file of algorithms with a ``sweep`` section and check every combination.

    Args:
        path, overrides, seed: as for ``load.load``; a swept key replaces what they set.
        scaled: from a combination's spec to overrides of it, which replace swept values as well; the
            combination's ``values`` stay those of the file.

    Raises:
        SpecError: the file has no such section, or it or a combination cannot be used.
    """
    path = Path(path)
    return _of_algorithms(load_any_sweep(path, overrides, seed, scaled), path)


def load_any_sweep(
    path: Path | str,
    overrides: Sequence[str | Override] = (),
    seed: int | None = None,
    scaled: Callable[[Spec], Sequence[str]] = lambda _: (),
) -> Sweep[AnySpec]:
    """Read any experiment file with a ``sweep`` section, as ``load_sweep`` does."""
    path = Path(path)
    return _parse(load.read_text(path), path, overrides, seed, scaled)


def _of_algorithms(sweep: Sweep[AnySpec], path: Path) -> Sweep[Spec]:
    points = (Combination(one.values, load.of_algorithms(one.spec, path)) for one in sweep.points)
    return Sweep(sweep.keys, tuple(points))


def parse_sweep(text: str, path: Path, overrides: Sequence[str | Override] = ()) -> Sweep[Spec]:
    """Read the text of an experiment file as ``load_sweep`` does; the path is for errors."""
    return _of_algorithms(_parse(text, path, overrides), path)


def _parse(
    text: str,
    path: Path,
    overrides: Sequence[str | Override],
    seed: int | None = None,
    scaled: Callable[[Spec], Sequence[str]] = lambda _: (),
) -> Sweep[AnySpec]:
    document, data, applied = load.read(text, path, overrides, seed)
    section = _section(path, document, data, applied)
    keys = dict(section.__pydantic_extra__)
    excluded = [_excluded(path, document, i, one, keys) for i, one in enumerate(section.exclude)]
    folders = load.folders(path, applied)
    rest = {key: value for key, value in data.items() if key != "sweep"}

    def with_(data: Any, before: list[Override], new: Sequence[str | Override]) -> _Replaced:
        changed, replaced = replacing.apply(data, new)
        every = [*before, *replaced]
        return changed, every, load.check(path, document, changed, every, folders)

    points: list[Combination[AnySpec]] = []
    for combination in product(*keys.values()):
        values = dict(zip(keys, combination, strict=True))
        if any(all(values[key] in of for key, of in one.items()) for one in excluded):
            continue
        swept = [_override(path, document, key, value) for key, value in values.items()]
        try:
            changed, every, spec = with_(rest, applied, swept)
            if isinstance(spec, Spec) and (more := scaled(spec)):
                _, _, spec = with_(changed, every, more)
        except SpecError as error:
            # The first combination's error is most likely that of all.
            where = f" (with {describe(values)})" if points else ""
            raise SpecError(f"{error}{where}") from None
        points.append(Combination(values, spec))
    if not points:
        raise SpecError(
            f"{path}:{document.line(('sweep', 'exclude'))}: sweep.exclude: leaves no run"
        )
    return Sweep(keys, tuple(points))


def _section(
    path: Path, document: Document, data: Mapping[str, Any], applied: list[Override]
) -> SweepSpec:
    content = data.get("sweep")
    if content is None:
        raise SpecError(
            f"{path}: has no sweep section: add one, such as `sweep: {{seed: [1, 2, 3]}}`, or use "
            f"`testbed run {path}`"
        )
    try:
        section = SweepSpec.model_validate(content, strict=True)
    except ValidationError:
        load.check(path, document, data, applied, load.folders(path, applied))
        raise
    if not section.__pydantic_extra__:
        raise SpecError(
            f"{path}:{document.line(('sweep',))}: sweep: has no key: add one with its values, such as "
            "`seed: [1, 2, 3]`"
        )
    return section


def _override(path: Path, document: Document, key: str, value: Any) -> Override:
    option = f"{path}:{document.line(('sweep', key))}: sweep: {key}: {text_of(value)}"
    steps = tuple(key.split("."))
    if not all(steps):
        raise SpecError(f"{option}: '{key}' is no key: write it as training.updates")
    return Override(option, steps, value)


def _excluded(
    path: Path,
    document: Document,
    number: int,
    one: Mapping[str, Any],
    keys: Mapping[str, tuple[Any, ...]],
) -> dict[str, list[Any]]:
    """Return the values of each key that one entry of ``exclude`` leaves out."""
    where = f"{path}:{document.line(('sweep', 'exclude', number))}: sweep.exclude.{number}"
    if not one:
        raise SpecError(f"{where}: is empty, and would leave out everything: name a swept key")
    found = {}
    for key, value in one.items():
        if key not in keys:
            raise SpecError(f"{where}: '{key}' is not swept{did_you_mean(key, keys)}")
        found[key] = value if isinstance(value, list) else [value]
        for each in found[key]:
            if each not in keys[key]:
                of = ", ".join(map(text_of, keys[key]))
                raise SpecError(f"{where}: {key} has no value {text_of(each)}: it has {of}")
    return found


def text_of(value: Any) -> str:
    """Return a value as it is written in the file, on one line."""
    if isinstance(value, str):
        return value
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).split("\n")[0]


def describe(values: Values, algorithm: str = "") -> str:
    """Return a combination in words: ``seed 1, waiting.mean 200ms``.

    Args:
        algorithm: is named before, so that the keys of its options need not.
    """
    own = f"algorithms.{algorithm}."
    return ", ".join(f"{key.removeprefix(own)} {text_of(one)}" for key, one in values.items())


def by_algorithm(spec: T) -> Iterator[tuple[str, str, T]]:
    """Yield the runs of a spec: a name that no swept option changes, the label, the run's spec."""
    if isinstance(spec, ProgramsSpec):
        yield spec.run_label, spec.run_label, spec
        return
    assert isinstance(spec, Spec)
    taken: set[str] = set()
    for options, (label, run) in zip(spec.algorithms, spec.runs().items(), strict=True):
        name = base = options.label or options.name
        number = 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        yield name, label, cast("T", run)
