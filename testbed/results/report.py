"""``report.html``: the results of some runs in one file that needs nothing else, for years.

The page makes no request: plotly.js and the data are in it, the letters are the reader's own, and
its Content-Security-Policy forbids the network and every script but the two that were put in (by
their hashes), whatever a run directory may hold. Text from files is escaped by the template.
Without scripts the page still has the table, the specs and the figures' numbers.
"""

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import TestbedError
from testbed.results import quantities as q
from testbed.results.figures import COLOURS
from testbed.results.reading import Run
from testbed.results.table import ACCURACY, compare

_DARK_COLOURS = ("#56B4E9", "#FF8A4C", "#2FC79A", "#E39AC6", "#F0B429", "#8FA8FF", "#E6E6E6")
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_BARS = 60
"""Bars of the staleness histogram at most, so that it is legible with hundreds of workers."""
_EVENTS = 50
"""Warnings and errors shown for each run, the last ones; ``events.jsonl`` has them all."""


def write_report(runs: Sequence[Run], path: Path, accuracy: float = ACCURACY) -> Path:
    """Write the report of some runs and return its path.

    Args:
        runs: at least one; of one experiment or of several.
        path: where to; an earlier report there is replaced at once, when the new one is complete.
        accuracy: the accuracy to reach, percent, of the table's last column.

    Raises:
        NoRunError: a journal cannot be read.
        TestbedError: the file cannot be written.
    """
    text = _page(runs, accuracy)
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


def _page(runs: Sequence[Run], accuracy: float) -> str:
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    comparison = compare(runs, accuracy)
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
        data=Markup(_data(runs, names)),
        experiments=list(dict.fromkeys(run.manifest.experiment for run in runs)),
        manifests=[run.manifest for run in runs],
        comparison=comparison,
        runs=[_details(name, run) for name, run in zip(names, runs, strict=True)],
        evaluated=any(len(run.curve) for run in runs),
        workers=sorted({run.manifest.workers for run in runs}),
        hosts=sorted({run.manifest.host.name for run in runs}),
        started=min(run.manifest.started for run in runs).strftime("%d %B %Y, %H:%M UTC"),
    )


def _details(name: str, run: Run) -> dict[str, Any]:
    """What the template says about one run beside the table."""
    manifest, summary = run.manifest, run.summary
    host = manifest.host
    facts = {
        "Run": run.id,
        "Started": manifest.started.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "Set-up": q.as_duration(summary.setup_seconds),
        "Training": q.as_duration(summary.training_seconds),
        "Workers": q.as_count(manifest.workers),
        "Workers lost": q.as_count(summary.workers_lost),
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
        "diverged_at": run.curve.diverged_at,
        "facts": facts,
        "specification": run.specification,
        "events": grave[-_EVENTS:],
        "events_left_out": max(0, len(grave) - _EVENTS),
    }


def _data(runs: Sequence[Run], names: Sequence[str]) -> str:
    """What the charts show, as JSON that cannot end the element it stands in."""
    width = _bar_width(runs)
    charts = [
        {
            # Plotly reads a little HTML in names: what looks like it is shown as it is written.
            "name": html.escape(
                name if run.ended == "completed" else f"{name} ({run.ended})", quote=False
            ),
            "iteration": run.curve.iteration.tolist(),
            "time": _finite(run.curve.time),
            "accuracy": _finite(run.curve.accuracy),
            "payload": run.curve.payload_bytes.tolist(),
            "message": run.curve.message_bytes.tolist(),
            "wire": run.curve.wire_bytes.tolist(),
            "staleness": _histogram(run.staleness, width),
            "symbol": _SYMBOLS[i % len(_SYMBOLS)],
            "dash": _DASHES[i % len(_DASHES)],
        }
        for i, (name, run) in enumerate(zip(names, runs, strict=True))
    ]
    content = {
        "runs": charts,
        "staleness_width": width,
        "colours": {"light": COLOURS, "dark": _DARK_COLOURS},
    }
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _finite(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _bar_width(runs: Sequence[Run]) -> int:
    """The histograms' common bar width: whole numbers of staleness, ``_BARS`` bars at most."""
    largest = max((int(run.staleness.max()) for run in runs if len(run.staleness)), default=0)
    return max(1, -(-(largest + 1) // _BARS))


def _histogram(staleness: npt.NDArray[np.int64], width: int) -> list[float]:
    """Share of the updates (percent) in each bar, the first starting at staleness 0."""
    if not len(staleness):
        return []
    counts = np.bincount(staleness // width)
    return [round(100 * float(count) / len(staleness), 4) for count in counts]


def _resource(name: str) -> str:
    return resources.files("testbed.results").joinpath(name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """Script text as the page's parser will see it, which is what its hash is taken of."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
