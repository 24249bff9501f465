"""The experiment file as a type: its contents, and that they can be together.

The models are frozen and accept nothing they do not know. They check what can be checked without
data and without this host; durations, rates and shares are written as people write them
(``testbed.experiment.units``). A spec is *resolved* when it stands alone: datasets in a directory
have an absolute path, and everything left out has its default.
"""

from typing import Any

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from testbed.experiment.conflicts import conflicts
from testbed.experiment.contents import Contents
from testbed.experiment.labels import labels


class Spec(Contents):
    """One experiment: the same devices and data, one run for each algorithm."""

    @model_validator(mode="before")
    @classmethod
    def _clock_of_engine(cls, data: Any) -> Any:
        # What a simulation's clock is need not be said.
        if isinstance(data, dict) and data.get("engine") == "simulation" and "clock" not in data:
            return data | {"clock": "virtual"}
        return data

    @model_validator(mode="after")
    def _possible(self) -> "Spec":
        found = conflicts(self)
        if found:
            raise PydanticCustomError(
                "conflict",
                "{text}",
                {"text": "; ".join(text for _, text in found), "conflicts": found},
            )
        return self

    def runs(self) -> dict[str, "Spec"]:
        """One spec per algorithm, with only that algorithm, by label and in the file's order."""
        return {
            label: self.model_copy(
                update={"algorithms": (options.model_copy(update={"label": label}),)}
            )
            for label, options in zip(labels(self.algorithms), self.algorithms, strict=True)
        }
