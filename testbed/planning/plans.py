"""Plans of any experiment: of the testbed's own algorithms, or of programs of users."""

from typing import TypeAlias

from testbed.experiment.load import AnySpec
from testbed.experiment.programs_spec import ProgramsSpec
from testbed.planning.plan import Plan, plan
from testbed.planning.program_plan import ProgramPlan, plan_programs

AnyPlan: TypeAlias = Plan | ProgramPlan


def plans_of(spec: AnySpec) -> list[AnyPlan]:
    """Plan the runs of an experiment: one for each algorithm, or one of its programs.

    Raises:
        SpecError: see ``plan`` and ``plan_programs``.
    """
    if isinstance(spec, ProgramsSpec):
        return list(plan_programs(spec))
    return list(plan(spec))
