"""An experiment as a value: a file's text, and the values that replace some of the file's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.experiment import load
from testbed.experiment.overrides import Override, of_value
from testbed.experiment.spec import Spec


@dataclass(frozen=True)
class Experiment:
    """An experiment that has been read and checked. Made by ``load`` or ``parse``.

    Attributes:
        spec: every setting, defaults included.
    """

    spec: Spec = field(repr=False)
    _text: str = field(repr=False)
    _path: Path = field(repr=False)
    _overrides: tuple[Override, ...] = field(default=(), repr=False)

    @classmethod
    def load(cls, path: str | Path) -> "Experiment":
        """Read an experiment file.

        Args:
            path: the YAML file; a relative path in it is relative to its folder.

        Raises:
            SpecError: the file cannot be used; the message has a line for each problem.
        """
        path = Path(path)
        return cls._of(load.read_text(path), path, ())

    @classmethod
    def parse(cls, text: str) -> "Experiment":
        """Read an experiment that is written in the program itself.

        Args:
            text: YAML, as in an experiment file; a relative path in it is relative to the current
                folder.

        Raises:
            SpecError: the text cannot be used; the message has a line for each problem.
        """
        return cls._of(text, Path("experiment"), ())

    def with_(self, values: Mapping[str, object] | None = None, /, **keywords: Any) -> "Experiment":
        """Return the experiment with other values; this one stays as it is.

        Args:
            values: by dotted keys, as ``--set`` has them: ``{"algorithms.adacomp.ratio": 0.1}``.
            keywords: the same, with two underscores in the place of a dot:
                ``training__updates=500, seed=3``. A value is written as in the file: ``"200ms"``.

        Raises:
            SpecError: a key or a value cannot be used.
        """
        new = [
            of_value(key, value, f"with_({{{key!r}: {value!r}}})")
            for key, value in (values or {}).items()
        ]
        for key, value in keywords.items():
            new.append(of_value(key.replace("__", "."), value, f"with_({key}={value!r})"))
        return self._of(self._text, self._path, (*self._overrides, *new))

    @classmethod
    def _of(cls, text: str, path: Path, overrides: tuple[Override, ...]) -> "Experiment":
        return cls(load.parse(text, path, overrides), text, path, overrides)

    @property
    def source(self) -> tuple[str, Path, tuple[Override, ...]]:
        """Its file's text, the path by which messages name it, and values that replace some of it."""
        return self._text, self._path, self._overrides

    @property
    def name(self) -> str:
        """The experiment's name, which is also that of its folder of runs."""
        return self.spec.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its runs, one for each algorithm."""
        return tuple(self.spec.runs())

    def __repr__(self) -> str:
        options = "".join(f".{override.option}" for override in self._overrides)
        return f"<Experiment {self.name}: {self._path}{options}>"

    def __str__(self) -> str:
        """The experiment as a file, with every default."""
        return load.dump(self.spec)
