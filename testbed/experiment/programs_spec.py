"""The experiment file of programs of users as a type: its contents, which do not conflict."""

from typing import Any

from pydantic import model_validator

from testbed.experiment.program_conflicts import conflicts
from testbed.experiment.program_contents import ProgramContents
from testbed.experiment.sections.section import refuse


class ProgramsSpec(ProgramContents):
    """One experiment with programs of users: one run."""

    @model_validator(mode="after")
    def _check_conflicts(self) -> "ProgramsSpec":
        refuse(conflicts(self))
        return self


def is_of_programs(data: Any) -> bool:
    """Return True if the data of an experiment file are about programs of users."""
    return isinstance(data, dict) and "programs" in data
