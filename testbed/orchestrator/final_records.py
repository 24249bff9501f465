"""Write how a run ended: its summary, the account of its traffic, and the last events."""

from collections.abc import Iterable
from typing import Any

from testbed.device_names import EVALUATOR_NAME
from testbed.errors import RunError
from testbed.metrics.live import LiveRun
from testbed.orchestrator.checkpoint_store import CheckpointStores
from testbed.orchestrator.evaluations import Evaluations
from testbed.orchestrator.training_records import TrainingRecords
from testbed.planning.plan import Plan
from testbed.run_endings import SummaryContent, is_complete
from testbed.run_tables import DeviceUtilisation
from testbed.runs import energy, utilisation
from testbed.runs.ending import explain
from testbed.runs.ledgers.traffic_account import settle
from testbed.runs.planned_run import PlannedRun
from testbed.runs.utilisation import Passed
from testbed.telemetry.end_tables import write_utilisation
from testbed.telemetry.event_kinds import EventKind
from testbed.telemetry.state_board import WakeUps


def write_end(
    planned: PlannedRun[Plan, LiveRun],
    records: TrainingRecords,
    evaluations: Evaluations,
    store: CheckpointStores,
    wake_ups: Iterable[WakeUps],
) -> dict[str, Any]:
    """Write the end of a run to its directory, and return the summary.

    Args:
        wake_ups: those of each device, under the wall clock.

    Raises:
        RunError: it cannot be written.
    """
    plan, outcome, log = planned.plan, records.outcome, records.log
    try:
        try:
            after_drain = evaluations.ingress.after_drain()
            ingress = evaluations.ingress_of_updates()
        except Exception as error:
            records.fail(error)
            after_drain, ingress = None, evaluations.ingress_of_updates()
        servers = {}
        if len(plan.servers) > 1:
            servers = dict(zip(plan.servers, evaluations.ingress_of_servers(), strict=True))
        summary = outcome.summary(plan, ingress, after_drain, servers)
        summary |= evaluations.left_out.summary()
        summary["traffic"] = _settle(records)
        if records.fidelity and records.training is not None:
            summary["fidelity"] = records.fidelity.section(wake_ups, records.over_links)
        summary |= records.background.summary()
        if plan.aggregators:
            summary["aggregators"] = _of_aggregators(plan, records, resumed=store.resumed)
        if records.peers:
            summary["peers"] = records.peers
        records.write_links(outcome.last_update - records.earlier_seconds)
        used = records.used if plan.spec.clock == "virtual" else _measured(plan, records)
        if used:
            write_utilisation(planned.directory, used)
            summary["utilisation"] = utilisation.summary(used, plan.spec.clock)
            summary |= energy.summary(used)
        if evaluations.left_out:
            records.event("warning", evaluations.left_out.told, EVALUATOR_NAME)
        if outcome.reason:
            level = "warning" if is_complete(outcome.ended) else "error"
            records.event(level, outcome.reason, None, EventKind.ENDED)
        log.close(outcome.ended, outcome.reason, summary)
        if is_complete(outcome.ended):
            store.remove()
    except OSError as error:
        raise RunError(explain(error, planned.directory)) from error
    return summary


def _measured(plan: Plan, records: TrainingRecords) -> list[DeviceUtilisation]:
    """Return how busy each device of a run under the wall clock was; nothing if it did not train."""
    if records.training is None:
        return []
    passed: dict[str, Passed] = {}
    if records.over_links:
        seconds = records.outcome.last_update - records.earlier_seconds
        for link in plan.asked_network.links:
            both = [records.over_links.get((link.index, up)) for up in (True, False)]
            if both[0] is not None and both[1] is not None:
                passed[link.node] = Passed("counted", seconds, both[0].bytes, both[1].bytes)
    else:  # it was cut short
        for name, (time, sent, received) in records.sampled.items():
            if time > records.training:
                passed[name] = Passed("sampled", time - records.training, sent, received)
    apart = {*plan.local, *plan.local.values()}  # links within a machine
    passed = {name: one for name, one in passed.items() if name not in apart}
    found = utilisation.rows(plan, records.processors.used, passed)
    used = records.meter.metered(found, records.earlier_seconds)
    if any(one.joules is not None for one in used) and not records.earlier_seconds:
        records.log.take(energy.used(used, max(one.window for one in passed.values())))
    return used


def _of_aggregators(
    plan: Plan, records: TrainingRecords, *, resumed: bool
) -> dict[str, dict[str, int]]:
    """Return what each aggregator received of its devices, with the wire bytes where they are known.

    The counters of a resumed run have those of its last session only.
    """
    found = {}
    for index, told in records.servers.of_aggregators().items():
        name, counter = plan.serving[index], records.ledgers[index].counter
        found[name] = told
        if counter is not None and not resumed:
            found[name] = told | {"wire_bytes": int(counter["bytes"])}
    return found


def _settle(records: TrainingRecords) -> SummaryContent:
    """Account for the traffic; an error in this must not cost the run its summary."""
    ledgers, log = records.ledgers, records.log
    try:
        return settle(ledgers, log.traffic, records.fidelity.gaps if records.fidelity else None)
    except Exception as error:
        log.give_back_reserve()
        reason = f"the traffic could not be accounted for: {error}"
        records.event("error", reason, None)
        failure = {"ledgers": "all", "device": None, "expected": 0, "found": 0}
        return {
            "capture": ledgers[0].capture,
            "reconciled": False,
            "differences": [failure | {"reason": reason}],
        }
