"""``testbed dilate``: an experiment beside the same one with every time longer, and rates lower."""

import shlex
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import AsJson
from testbed.cli.run import Out, Overrides, Seed, SpecFile
from testbed.errors import RunError, SpecError
from testbed.number_text import as_share
from testbed.telemetry.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.execution import ExecutionResult
    from testbed.results.reading.recorded_run import RecordedRun
    from testbed.results.tables.dilation_table import DilationComparison

DIFFERENT = 5
"""The exit status if curves do not agree; 3 and 4 are of runs that are not completed."""
VALUES = {"value": "", "dilated_value": "dilated_"}
"""The prefixes of the quality's name in the keys of JSON, by the fields of a point."""
Existing = typer.Option(
    metavar="RUN", help="Take this execution, as `testbed show` takes it, instead of a new one."
)


def dilate(
    spec: SpecFile,
    *,
    factor: Annotated[
        float, typer.Option(help="By how much times are longer, and rates lower.")
    ] = 4.0,
    tolerance: Annotated[
        float,
        typer.Option(
            help="The greatest difference of times and of ingress, as a share of the whole run's."
        ),
    ] = 0.05,
    original: Annotated[str | None, Existing] = None,
    dilated: Annotated[str | None, Existing] = None,
    set_: Overrides = None,
    seed: Seed = None,
    out: Out = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Run an experiment, and the same one with every time × FACTOR, and compare their curves.

    Delays, computing, waiting, faults and limits are longer by the factor, and rates are lower. If the
    host is fast enough, both make the same updates at time ÷ FACTOR. The status is 0 if all curves
    agree, and 5 if not.
    """
    from testbed.cli.shown_runs import all_runs
    from testbed.display.displayed import displayed
    from testbed.execution import check, execute
    from testbed.experiment.dilation import dilated as make_dilated
    from testbed.experiment.dilation import dilated_name, not_dilated
    from testbed.experiment.load import load_any
    from testbed.planning.plans import plans_of
    from testbed.results.tables.dilation_table import compared

    if not 1 < factor <= 1e6:
        raise SpecError(f"--factor {factor:g}: give a number above 1, up to 1e6")
    loaded = load_any(spec, set_ or (), seed)
    if not tolerance >= 0:
        raise SpecError(f"--tolerance {tolerance:g}: give a share of the whole run's, 0 or more")
    exact = Fraction(repr(factor))
    longer = make_dilated(loaded, exact, out / dilated_name(loaded, exact))
    pairs: list[tuple[RecordedRun, ...]] = []
    for own, taken in ((loaded, original), (longer, dilated)):
        if taken is None:
            check(plans_of(own), out)
    for own, taken, option in ((loaded, original, "original"), (longer, dilated, "dilated")):
        named = taken
        if named is None:
            with displayed() as watch:
                result = execute(own, out, watch, report=False)
            _require_complete(result, option)
            named = str(result.directory)
        pairs.append(all_runs([named], out))
    require_alike(*pairs)
    comparisons = [
        (first, second, compared(first, second, factor))
        for first, second in zip(*pairs, strict=True)
    ]
    remarks = list(not_dilated(longer)) if longer.clock == "wall" else []
    if as_json:
        typer.echo(json_text([_as_json(*one, tolerance, remarks) for one in comparisons], indent=2))
    else:
        for one in comparisons:
            _print(*one, tolerance)
        if remarks:
            typer.echo(f"\nnot dilated: {'; '.join(remarks)}")
    if not all(one.agrees(tolerance) for _, _, one in comparisons):
        raise RunError(
            "the curves differ: at these times and rates it is the host that decides how fast training "
            "is; take fewer devices, a faster host, or the virtual clock",
            DIFFERENT,
        )


def require_alike(originals: "Sequence[RecordedRun]", dilated: "Sequence[RecordedRun]") -> None:
    """Check that runs may be of one experiment.

    Raises:
        SpecError: they are not.
    """
    if len(originals) != len(dilated):
        counts = f"{len(originals)} and {len(dilated)} runs"
        raise SpecError(f"the executions have {counts}: they are not of the same experiment")
    for first, second in zip(originals, dilated, strict=True):
        if (own := _algorithm(first)) != (other := _algorithm(second)):
            raise SpecError(
                f"{first.id} is of {own} and {second.id} of {other}: their curves say nothing of the "
                "host, name runs of one algorithm"
            )


def _algorithm(run: "RecordedRun") -> str:
    """Return the name of a run's algorithm; its options may be dilated, and with them the label."""
    match run.spec:
        case {"algorithms": [str(name) | {"name": name}, *_]}:
            return str(name)
    return "programs" if run.manifest.programs else "an unknown algorithm"


def _require_complete(result: "ExecutionResult", option: str) -> None:
    """Refuse to go on after a run that was interrupted or has failed."""
    from testbed.run_endings import is_complete, worst
    from testbed.runs.ending import incomplete

    if (ended := worst(result.summaries)) is None or is_complete(ended["ended"]):
        return
    goes_on = ended["ended"] == "interrupted"
    where = shlex.quote(str(result.directory))
    more = (
        f"; `testbed resume {where}` goes on where it stopped, and --{option} {where} takes it then"
    )
    raise incomplete(ended, more if goes_on else "")


def _print(
    first: "RecordedRun", second: "RecordedRun", found: "DilationComparison", tolerance: float
) -> None:
    from testbed.results.tables.fidelity_table import fidelity_in_words
    from testbed.results.tables.table import plain_text
    from testbed.untrusted_text import printable

    typer.echo(printable(f"{first.id} beside {second.id}"))
    typer.echo(plain_text(found))
    times, ingress = found.greatest
    verdict = "agree" if found.agrees(tolerance) else "DIFFER"
    typer.echo(
        f"greatest difference: {as_share(times)} of the time, {as_share(ingress)} of the ingress "
        f"(tolerance: {as_share(tolerance)}): the curves {verdict}"
    )
    for run in (first, second):
        if run.manifest.clock == "wall" and (host := fidelity_in_words(run)):
            typer.echo(printable(f"{run.id}: {host}"))


def _as_json(
    first: "RecordedRun",
    second: "RecordedRun",
    found: "DilationComparison",
    tolerance: float,
    remarks: list[str],
) -> dict[str, Any]:
    times, ingress = found.greatest
    own = {name: f"{which}{found.quality.name}" for name, which in VALUES.items()}
    points = [
        {own.get(name, name): value for name, value in asdict(point).items()}
        for point in found.points
    ]
    return {
        "original": first.id,
        "dilated": second.id,
        "factor": found.factor,
        "quality": found.quality.record(),
        "points": points,
        "greatest_time_difference": times,
        "greatest_ingress_difference": ingress,
        "tolerance": tolerance,
        "agree": found.agrees(tolerance),
        "not_dilated": remarks,
    }
