"""The table of the faults of some runs: a line for each rule of an experiment file that struck."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import number_text as q
from testbed.device_names import SERVER_NAME, is_aggregator, is_server
from testbed.results.reading.recorded_faults import AWAY, FaultOccurrence, in_order, struck
from testbed.results.reading.recorded_run import RecordedRun

HEADINGS = ("run", "rule", "fault", "devices", "times", "first", "last")


def rows(names: Sequence[str], runs: Sequence[RecordedRun]) -> tuple[tuple[str, ...], ...]:
    """Return a row of text for each rule that struck in each run: see ``HEADINGS``.

    ``devices`` is the number of different devices that it struck, ``times`` how often it struck (a
    partition of ten devices is once); ``first`` and ``last`` are iterations and the run's clock.
    """
    return tuple(
        row for name, run in zip(names, runs, strict=True) for row in _rows_of_run(name, run)
    )


def _rows_of_run(name: str, run: RecordedRun) -> list[tuple[str, ...]]:
    by_rule: dict[tuple[int, str], list[FaultOccurrence]] = {}
    for occurrence in run.faults:
        by_rule.setdefault((occurrence.rule, occurrence.kind), []).append(occurrence)
    return [
        (
            name,
            _rule(run, rule, kind),
            kind,
            q.as_count(len({occurrence.device for occurrence in occurrences})),
            q.as_count(len({occurrence.began for occurrence in occurrences})),
            _when(occurrences[0]),
            _when(occurrences[-1]),
        )
        for (rule, kind), occurrences in sorted(by_rule.items())
    ]


def _rule(run: RecordedRun, rule: int, kind: str) -> str:
    if kind == AWAY:
        return "arrivals and departures"
    return in_words(run.rules[rule]) if rule < len(run.rules) else f"rule {rule + 1}"


def _when(occurrence: FaultOccurrence) -> str:
    return f"{q.as_count(occurrence.began.iteration)} ({q.as_duration(occurrence.began.time)})"


def in_a_line(run: RecordedRun) -> str:
    """Return a run's faults as ``freeze of 12 workers, kill of the server``; empty without faults."""
    parts = []
    found = struck(run.faults)
    for kind in in_order(found):
        devices = {occurrence.device for occurrence in run.faults if occurrence.kind == kind}
        serving = sorted(one for one in devices if is_server(one) or is_aggregator(one))
        workers = len(devices) - len(serving)
        whom = [f"{workers:,} worker{'s' if workers != 1 else ''}"] if workers else []
        whom += ["the server" if one == SERVER_NAME else one for one in serving]
        of = f"{' and '.join(whom)}"
        parts.append(f"{of} away for some time" if kind == AWAY else f"{kind} of {of}")
    return ", ".join(parts)


def never_struck(run: RecordedRun) -> str:
    """Return a sentence on the faults of rules that struck nothing; empty if each has struck."""
    rules, summary = run.rules, run.summary
    never = [
        in_words(rules[rule]) if 0 <= rule < len(rules) else f"rule {rule + 1}"
        for rule in summary.never_struck
    ]
    if not never:
        return ""
    these = "this fault" if len(never) == 1 else "these faults"
    end = f"training ended at {q.as_duration(summary.training_seconds)}, update {summary.updates:,}"
    return f"{these} never struck, {end}: {'; '.join(never)}"


def in_words(rule: object) -> str:
    """Return a rule of the experiment file in words; one that is not understood, unchanged as text.

    ``{who: each, when: {probability: 0.0004}, how: freeze}`` is ``each worker, with probability
    0.0004 after each push: freeze for good``.
    """
    if not isinstance(rule, Mapping):
        return str(rule)
    what, lasting = _how(rule.get("how")), rule.get("lasting")
    who = _who(rule.get("who", "each"))
    if (found := _one_known(rule.get("when"))) and found[0] == "trace":
        # The devices and the faults are in that file.
        return f"{who}, as {Path(str(found[1])).name} says".removeprefix("each worker, ")
    if _strikes_servers(rule.get("who")):
        late = " at once" if lasting is None else f" after {lasting}"
        return f"{who}, {_when_in_words(rule.get('when'))}: {what}, and restart{late}"
    how_long = "for good" if lasting is None else f"for {lasting}"
    return f"{who}, {_when_in_words(rule.get('when'))}: {what} {how_long}"


def _strikes_servers(who: object) -> bool:
    match who:
        case {"devices": [*devices]}:
            return all(is_server(str(device)) for device in devices)
    return who == SERVER_NAME


def _who(who: object) -> str:
    match who:
        case "each" | "server":
            return {"each": "each worker", "server": "the server"}[who]
        case {"number": number}:
            return f"{number} worker{'s' if number != 1 else ''}"
        case {"share": share}:
            return f"{share} of the workers"
        case {"class": name}:
            return f"class {name}"
        case {"devices": [*devices]}:
            return ", ".join(map(str, devices))
    return str(who)


def _when_in_words(when: object) -> str:
    found = _one_known(when)
    match found:
        case ("probability", p):
            return f"with probability {_short(p)} after each push"
        case ("time", moment):
            return f"at {moment}"
        case ("iteration", int(iteration)):
            return f"at iteration {iteration:,}"
        case ("mean_time", mean):
            return f"every {mean} on average"
    return str(when)


def _one_known(when: object) -> tuple[str, Any] | None:
    """Return the only key of a mapping that has a value, and the value; None if not exactly one."""
    known = [(k, v) for k, v in when.items() if v is not None] if isinstance(when, Mapping) else []
    return known[0] if len(known) == 1 else None


def _how(how: object) -> str:
    if not isinstance(how, Mapping):
        return str(how)
    details = [f"{k} {_short(v)}" for k, v in how.items() if k != "kind" and v is not None]
    return f"{how.get('kind')} ({', '.join(details)})" if details else str(how.get("kind"))


def _short(value: object) -> str:
    """Return ``0.0400%`` as ``0.04 %`` and ``5.0`` as ``5``."""
    text, percent = str(value).removesuffix("%"), " %" if str(value).endswith("%") else ""
    try:
        return f"{float(text):g}{percent}"
    except ValueError:
        return text
