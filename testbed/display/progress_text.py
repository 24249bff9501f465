"""The progress of a run in words and as a share, the same on every kind of screen."""

import math

from testbed.number_text import as_bytes, as_duration, as_number
from testbed.planning.plans import AnyPlan
from testbed.runs.watching import AnyProgress, ProgramProgress, Progress

_PHASES = {
    "loading": "loading libraries and data",
    "devices": "connecting workers",
    "training": "training",
    "finishing": "finishing",
}

_PHASES_OF_PROGRAMS = {
    "loading": "making devices",
    "programs": "running",
    "finishing": "ending programs",
}


def title(plan: AnyPlan, number: int, count: int) -> str:
    """Return the name of a run on a screen, with its number from 1 if there are several."""
    return plan.label if count == 1 else f"{plan.label} ({number}/{count})"


def share_done(progress: AnyProgress) -> float:
    """Return the share of the phase that is done, from 0 to 1, as a bar shows it.

    Of programs it is the share of the run's time limit.
    """
    if isinstance(progress, ProgramProgress):
        return min(1.0, progress.seconds / progress.limit)
    if progress.phase == "devices":
        return progress.devices / progress.all_devices
    return progress.updates / progress.all_updates


def _measured(progress: Progress) -> str:
    if progress.measure is not None:
        value = "–" if progress.measured is None else f"{progress.measured:.4g} {progress.unit}"
        return f"{progress.measure} {value}".strip()
    if progress.accuracy is None:
        return "accuracy –"
    if progress.loss is not None and not (
        math.isfinite(progress.loss) and math.isfinite(progress.accuracy)
    ):
        return f"loss {progress.loss:.4g}"
    return f"accuracy {progress.accuracy:.2f} %"


def describe(progress: AnyProgress) -> str:
    """Return a line about a run's progress."""
    if isinstance(progress, ProgramProgress):
        return _describe_programs(progress)
    parts = [_PHASES[progress.phase]]
    if progress.phase == "loading" and progress.made:
        parts.append(f"{progress.made:,} nodes made")
    if progress.phase == "loading" and progress.linked:
        parts.append(f"{progress.linked:,} links up")
    if progress.phase == "devices":
        parts.append(f"{progress.devices}/{progress.all_devices}")
    if progress.phase in ("training", "finishing") and progress.updates:
        parts += [
            f"{progress.updates:,}/{progress.all_updates:,} updates",
            f"{progress.rate:.0f}/s",
            _measured(progress),
            f"ingress {as_bytes(progress.wire_bytes)}",
        ]
    if progress.phase == "training" and progress.time_left is not None:
        if progress.updates < progress.all_updates:
            parts.append(f"{as_duration(progress.time_left)} left")
        elif progress.evaluations_due:
            parts.append(f"{as_number(progress.evaluations_due, 'evaluation')} left")
    if progress.lost:
        parts.append(f"{as_number(progress.lost, 'worker')} lost")
    return ", ".join(parts)


def _describe_programs(progress: ProgramProgress) -> str:
    parts = [_PHASES_OF_PROGRAMS[progress.phase]]
    if progress.phase == "loading" and progress.made:
        parts.append(f"{progress.made:,} nodes made")
    if progress.phase == "loading" and progress.linked:
        parts.append(f"{progress.linked:,} links up")
    if progress.phase != "loading":
        parts += [f"{name} {now}/{all_}" for name, (now, all_) in progress.running.items()]
        if progress.measure == "accuracy":
            parts.append(f"accuracy {progress.measured:.2f} %")
        elif progress.measure is not None:
            parts.append(f"{progress.measure} {progress.measured:.4g} {progress.unit}".rstrip())
        parts.append(f"ingress {as_bytes(progress.wire_bytes)}")
        parts.append(f"{as_duration(progress.seconds)} of at most {as_duration(progress.limit)}")
    if progress.lost:
        parts.append(f"{as_number(progress.lost, 'device')} lost")
    return ", ".join(parts)
