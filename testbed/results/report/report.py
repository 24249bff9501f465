"""``report.html``: the results of some runs in one file that needs nothing else, even years later.

The page makes no request: plotly.js and the data are in it, the fonts are the reader's own, and its
Content-Security-Policy forbids the network and every script but the page's own two (by their hashes),
for any content of a run directory. The template escapes text from files. Without scripts the page
still has the table, the specs and the figures' numbers.
"""

import base64
import hashlib
import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed import quantities as q
from testbed.drawing.svg import svg
from testbed.errors import TestbedError
from testbed.results.figures import diagnostics as diagnostics_figure
from testbed.results.figures.fault_marks import FEW, Mark, living, marks
from testbed.results.figures.fault_strip import colour_of
from testbed.results.figures.style import COLOURS, as_svg
from testbed.results.figures.traffic import KIND_COLOURS
from testbed.results.reading.curves import MEASURES, Curve, curves_of
from testbed.results.reading.faults import in_order, went_down
from testbed.results.reading.ingress import KINDS, Ingress, ingress_of, merged_remarks
from testbed.results.reading.quality import ACCURACY
from testbed.results.reading.run import Run
from testbed.results.reading.staleness import histograms
from testbed.results.tables import faults as fault_table
from testbed.results.tables.classes import HEADINGS, class_rows
from testbed.results.tables.comparison import compare
from testbed.results.tables.diagnostics import HEADINGS as DIAGNOSTIC_HEADINGS
from testbed.results.tables.diagnostics import diagnostic_rows
from testbed.results.tables.links import HEADINGS as LINK_HEADINGS
from testbed.results.tables.links import in_a_sentence, link_rows
from testbed.results.tables.over_links import HEADINGS as USE_HEADINGS
from testbed.results.tables.over_links import link_use_rows, picture_of
from testbed.results.tables.reaching import Reaching, reaching
from testbed.results.tables.servers import HEADINGS as SERVER_HEADINGS
from testbed.results.tables.servers import server_rows
from testbed.results.tables.utilisation import HEADINGS as UTILISATION_HEADINGS
from testbed.results.tables.utilisation import in_words, utilisation_rows
from testbed.results.tables.verdict import left_out, no_update, verdict

_DARK_COLOURS = ("#56B4E9", "#FF8A4C", "#2FC79A", "#E39AC6", "#F0B429", "#8FA8FF", "#E6E6E6")
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_EVENTS = 50
"""Warnings and errors shown for each run, the last ones; ``events.jsonl`` has them all."""


def write_report(
    runs: Sequence[Run], path: Path, goal: float | None = None, baseline: str | None = None
) -> Path:
    """Write the report of some runs and return its path.

    Args:
        runs: at least one; of one experiment or of several.
        path: an earlier report there is replaced in one step, when the new one is complete.
        goal: the value to reach, as for ``reaching.goal_of``; the page's reader may ask for another.
        baseline: the curve that the ratios refer to, as for ``reaching.baseline_of``.

    Raises:
        NoRunError: a journal cannot be read, or no curve has the baseline's name.
        TestbedError: the file cannot be written.
    """
    text = _page(runs, goal, baseline)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        raise TestbedError(f"the report {path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def _page(runs: Sequence[Run], goal: float | None, baseline: str | None) -> str:
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    comparison = compare(runs, goal, baseline)
    curves = curves_of(runs)
    reached = reaching(curves, goal, baseline)
    ingress = [ingress_of(curve) for curve in curves]
    titles = [curve.title for curve in curves]
    names = [row.name for row in comparison.rows]
    plotly, script = _script(get_plotlyjs()), _script(_resource("report.js"))
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"script-src {_hash(plotly)} {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        _resource("report.html.j2")
    )
    return template.render(
        policy=Markup(policy),
        style=Markup(_resource("report.css")),
        plotly=Markup(plotly),
        script=Markup(script),
        data=Markup(_data(curves, ingress, reached)),
        rounds=all(curve.of_programs for curve in curves),
        reached=reached,
        quality=reached.quality,
        by_accuracy=reached.quality == ACCURACY,
        remarks=merged_remarks(titles, ingress),
        experiments=list(dict.fromkeys(run.manifest.experiment for run in runs)),
        manifests=[run.manifest for run in runs],
        comparison=comparison,
        runs=[_details(name, run) for name, run in zip(names, runs, strict=True)],
        class_headings=HEADINGS,
        classes=[
            (name, [row.cells for row in rows])
            for name, run in zip(names, runs, strict=True)
            if (rows := class_rows(run))
        ],
        server_headings=SERVER_HEADINGS,
        servers=[
            (name, cells)
            for name, run in zip(names, runs, strict=True)
            if (cells := server_rows(run))
        ],
        utilisation_headings=UTILISATION_HEADINGS,
        utilisation=[
            (name, in_words(run), cells)
            for name, run in zip(names, runs, strict=True)
            if (cells := utilisation_rows(run))
        ],
        diagnosed=_image(curves),
        exact=any(run.manifest.exact for run in runs),
        diagnostic_headings=DIAGNOSTIC_HEADINGS,
        diagnostics=[
            (name, [row.cells for row in own])
            for name, run in zip(names, runs, strict=True)
            if (own := diagnostic_rows(run))
        ],
        link_headings=LINK_HEADINGS,
        links=[
            (name, in_a_sentence(run)["links"], [row.cells for row in link_rows(run)])
            for name, run in zip(names, runs, strict=True)
            if run.manifest.links
        ],
        use_headings=USE_HEADINGS,
        networks=[
            (name, Markup(svg(drawn, alone=False)), [row.cells for row in link_use_rows(run)])
            for name, run in zip(names, runs, strict=True)
            if (drawn := picture_of(run))
        ],
        faults=fault_table.rows(names, runs),
        fault_headings=fault_table.HEADINGS,
        evaluated=any(len(run.evaluations) for run in runs),
        workers=sorted({run.manifest.workers for run in runs}),
        hosts=sorted({run.manifest.host.name for run in runs}),
        started=min(run.manifest.started for run in runs).strftime("%d %B %Y, %H:%M UTC"),
    )


def _image(curves: Sequence[Curve]) -> str:
    """Return the figure of the diagnostics as an image's address; empty if there are none."""
    if not diagnostics_figure.declared(curves):
        return ""
    content = as_svg(lambda figure: diagnostics_figure.draw(figure, curves))
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"


def _details(name: str, run: Run) -> dict[str, Any]:
    """Return the template's values for one run, other than those of the table."""
    manifest, summary = run.manifest, run.summary
    host = manifest.host
    facts = {
        "Run": run.id,
        "Started": manifest.started.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "Set-up": q.as_duration(summary.setup_seconds),
        "Engine": run.clock,
        "Training": run.trained,
        "Workers": q.as_count(manifest.workers),
        "Died without a fault": q.as_count(summary.workers_lost),
        **{what.capitalize(): text for what, text in (no_update(run) | left_out(run)).items()},
        **{what.capitalize(): text for what, text in in_a_sentence(run).items()},
        "Host": host.name,
        "Processor": f"{host.cpu or 'unknown'}, {q.as_count(host.cpus)} CPUs",
        "Memory": q.as_bytes(host.memory_bytes),
        "Kernel": host.kernel,
        "Versions": ", ".join(f"{k} {v}" for k, v in manifest.versions.items()) or q.UNKNOWN,
        "Commit": manifest.commit or q.UNKNOWN,
        "Final parameters (SHA-256)": summary.parameters_sha256 or q.UNKNOWN,
    }
    grave = [event for event in run.events if event.level != "info"]
    return {
        "name": name,
        "ended": summary.ended,
        "reason": summary.reason,
        "reconstructed": summary.reconstructed,
        "diverged_at": run.evaluations.diverged_at,
        "never_struck": fault_table.never_struck(run),
        "verdict": verdict(run),
        "differences": summary.traffic.differences if summary.traffic else (),
        "facts": facts,
        "specification": run.specification,
        "events": grave[-_EVENTS:],
        "events_left_out": max(0, len(grave) - _EVENTS),
    }


def _data(curves: Sequence[Curve], ingress: Sequence[Ingress], reached: Reaching) -> str:
    """Return the charts' data as JSON that cannot end the element around it."""
    bars = histograms(curves)
    charts = [
        _chart(curve, own) | {"staleness": shares.round(4).tolist(), **_look(i)}
        for i, (curve, own, shares) in enumerate(zip(curves, ingress, bars.shares, strict=True))
    ]
    kinds = in_order({mark["kind"] for chart in charts for mark in chart["faults"]})
    content = {
        "curves": charts,
        "rounds": all(curve.of_programs for curve in curves),
        "fault_kinds": {kind: colour_of(kind) for kind in kinds},
        "kinds": {kind: [KINDS[kind], KIND_COLOURS[kind]] for kind in KINDS},
        "baseline": next(i for i, c in enumerate(curves) if c.name == reached.baseline),
        "quality": reached.quality.record() | {"axis": reached.quality.axis},
        "goal": reached.goal,
        "staleness_width": bars.width,
        "colours": {"light": COLOURS, "dark": _DARK_COLOURS},
    }
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _look(i: int) -> dict[str, str]:
    return {"symbol": _SYMBOLS[i % len(_SYMBOLS)], "dash": _DASHES[i % len(_DASHES)]}


def _chart(curve: Curve, ingress: Ingress) -> dict[str, Any]:
    """Return one curve's points, those of each run (for reaching a goal), faults and traffic."""
    mean = curve.mean
    several = len(curve.runs) > 1
    return {
        # Plotly interprets some HTML in names: escaped, it is shown as it is written.
        "name": html.escape(curve.title, quote=False),
        "iteration": mean.iteration.tolist(),
        "time": _finite(mean.time),
        "value": _finite(mean.value),
        "low": _finite(mean.low) if several else None,
        "high": _finite(mean.high) if several else None,
        **{measure: _finite(getattr(mean, f"{measure}_bytes").round()) for measure in MEASURES},
        "runs": [
            {
                "iteration": run.evaluations.iteration.tolist(),
                "value": _finite(run.evaluations.of(curve.quality)),
                **{m: _finite(getattr(run.evaluations, f"{m}_bytes")) for m in MEASURES},
            }
            for run in curve.runs
        ],
        "faults": [_fault(mark) for mark in marks(curve)],
        "living": _living(curve),
        "ingress": {
            "start": ingress.start,
            "width": ingress.width,
            "rates": {kind: rate.round(1).tolist() for kind, rate in ingress.rates.items()},
            "workers": list(ingress.workers),
            "shares": ingress.worker_shares.round(4).tolist(),
            "bytes": ingress.worker_bytes.round().tolist(),
        },
    }


def _fault(mark: Mark) -> dict[str, Any]:
    return {
        "kind": mark.kind,
        "server": mark.server,
        "text": html.escape(mark.text, quote=False),
        "at": _rounded(mark.at),
        "until": None if mark.until is None else _rounded(mark.until),
    }


def _rounded(at: Mapping[str, float]) -> dict[str, float | None]:
    names = ("iteration", "time", *MEASURES)
    return {name: round(at[name], 3) if math.isfinite(at[name]) else None for name in names}


def _living(curve: Curve) -> dict[str, Any] | None:
    """Return the number of workers alive; None if marks suffice for the workers that crashed."""
    found = living(curve)
    if found is None or max(went_down(run.faults) for run in curve.runs) <= FEW:
        return None
    at: dict[str, Any] = {name: _finite(values.round(1)) for name, values in found.at.items()}
    return at | {"workers": found.workers.round(2).tolist()}


def _finite(values: npt.NDArray[Any]) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _resource(name: str) -> str:
    return resources.files("testbed.results.report").joinpath(name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """Return script text as the page's parser will see it, because its hash is taken of that."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
