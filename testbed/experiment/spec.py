"""The experiment file as a type: its contents, with a check that its sections do not conflict.

The models are frozen and refuse unknown keys. They check everything that can be checked without
reading the dataset or examining the host; durations, rates and shares are written as people write
them (``testbed.units``). A spec is *resolved* when it needs no other information:
datasets in a directory have an absolute path, and every key left out has its default.
"""

from typing import Any

from pydantic import model_validator

from testbed.experiment.conflicts import conflicts
from testbed.experiment.contents import Contents
from testbed.experiment.labels import labels
from testbed.experiment.sections.section import refuse


class Spec(Contents):
    """One experiment: the same devices and data, one run for each algorithm."""

    @model_validator(mode="before")
    @classmethod
    def _clock_of_engine(cls, data: Any) -> Any:
        # A simulation has only one clock, so the file need not name it.
        if isinstance(data, dict) and data.get("engine") == "simulation" and "clock" not in data:
            return data | {"clock": "virtual"}
        return data

    @model_validator(mode="after")
    def _check_conflicts(self) -> "Spec":
        refuse(conflicts(self))
        return self

    def runs(self) -> dict[str, "Spec"]:
        """Return a spec for each algorithm alone, by label and in the file's order."""
        return {
            label: self.model_copy(
                update={"algorithms": (options.model_copy(update={"label": label}),)}
            )
            for label, options in zip(labels(self.algorithms), self.algorithms, strict=True)
        }
