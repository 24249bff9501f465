"""Check, before anything is started, that another host has all that a run needs there."""

from collections.abc import Iterator, Sequence

from testbed.errors import HostError
from testbed.learning.data import catalogue
from testbed.orchestrator.hosts.member import Member
from testbed.planning import program_plan
from testbed.planning.node_plan import files_read
from testbed.planning.plan import Plan
from testbed.planning.plans import AnyPlan


def lacks(plan: AnyPlan, member: Member, devices: Sequence[str]) -> Iterator[str]:
    """Yield a sentence on each thing that a host lacks: room, files, programs, this host's data.

    Args:
        devices: the workers or peers on it.

    Raises:
        DataError: this host lacks the data.
        HostError: the host has ended its connection.
    """
    try:
        member.check_room(len(devices), plan.shared_memory, plan.memory_per_device)
    except HostError as error:
        yield str(error)
        return
    if isinstance(plan, Plan):
        yield from _of_data(plan, member)
        return
    keys = program_plan.files_read(plan, devices)
    for path in member.missing([*keys]):
        yield (
            f"{member.host.described} has no {path}, which the programs there need ({keys[path]}): it "
            "has to be in the same place on every host"
        )


def _of_data(plan: Plan, member: Member) -> Iterator[str]:
    host, dataset = member.host, plan.settings.dataset
    paths = [str(path) for path, name in files_read(plan) if name is None]
    if missing := member.missing(host.placed(paths)):
        yield from (f"{host.described} has no {path}, which the run reads" for path in missing)
    elif not dataset.is_function:  # what that returns each role compares with what it returned here
        try:
            its = member.fingerprint(host.placed(dataset.name))
        except HostError as error:
            yield str(error)
            return
        if its != catalogue.fingerprint(dataset.name):
            yield (
                f"{host.described} has other data than this host by the name of dataset {dataset}: all "
                "devices have to train on the same"
            )
