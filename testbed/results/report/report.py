"""``report.html``: the results of some runs in one file that needs nothing else, even years later.

The page makes no request: plotly.js and the data are in it, the fonts are the reader's own, and its
Content-Security-Policy forbids the network and every script but the page's own two (by their hashes),
for any content of a run directory. The template escapes text from files. Without scripts the page
still has the table, the specs and the figures' numbers.
"""

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from testbed import number_text as q
from testbed.drawing.svg import svg
from testbed.errors import TestbedError
from testbed.results.reading.curves import curves_of
from testbed.results.reading.outputs import last_lines
from testbed.results.reading.quality import ACCURACY
from testbed.results.reading.recorded_run import RecordedRun
from testbed.results.report.charts import as_json, page_charts
from testbed.results.tables import fault_table
from testbed.results.tables.comparison import compare
from testbed.results.tables.device_use_table import in_words
from testbed.results.tables.fidelity_table import fidelity_in_words
from testbed.results.tables.link_traffic_table import picture_of
from testbed.results.tables.of_run import tables_of
from testbed.results.tables.probed_links_table import in_a_sentence
from testbed.results.tables.reaching import reaching
from testbed.results.tables.table import Table, of_words
from testbed.results.tables.verdict import left_out, no_update, verdict

REPORT = "testbed.results.report"
"""The package that has the report's templates, styles and script."""
_EVENTS = 50
"""Warnings and errors shown for each run, the last ones; ``events.jsonl`` has them all."""


def write_report(
    runs: Sequence[RecordedRun], path: Path, goal: float | None = None, baseline: str | None = None
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
    text = _page(content_of(runs, goal, baseline))
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


@dataclass(frozen=True, slots=True)
class Content:
    """A page's title, its header and main part, and its charts, as JSON that stands in an element."""

    title: str
    html: str
    data: str = "null"


def content_of(
    runs: Sequence[RecordedRun], goal: float | None = None, baseline: str | None = None
) -> Content:
    """Return what the report of some runs shows; arguments and errors are those of ``write_report``."""
    comparison = compare(runs, goal, baseline)
    curves = curves_of(runs)
    reached = reaching(curves, goal, baseline)
    charts = page_charts(curves)
    names = [row.name for row in comparison.rows]
    experiments = list(dict.fromkeys(run.manifest.experiment for run in runs))
    html = render(
        REPORT,
        "content.html.j2",
        rounds=all(curve.of_programs for curve in curves),
        reached=reached,
        quality=reached.quality,
        by_accuracy=reached.quality == ACCURACY,
        remarks=charts["ingress-by-worker"].remarks,
        experiments=experiments,
        comparison=comparison,
        runs=[_details(name, run) for name, run in zip(names, runs, strict=True)],
        of_words=of_words,
        exact=any(run.manifest.exact for run in runs),
        faults=Table(fault_table.HEADINGS, fault_table.rows(names, runs)),
        labelled=(shared := charts.get("labels-per-device")) is not None,
        labelled_apart=shared is not None and len(shared.plots) > 1,
        metered="joules" in charts,
        evaluated=any(len(run.evaluations) for run in runs),
        workers=sorted({run.manifest.workers for run in runs}),
        hosts=sorted({run.manifest.host.name for run in runs}),
        started=min(run.manifest.started for run in runs).strftime("%d %B %Y, %H:%M UTC"),
    )
    title = f"{', '.join(experiments)} · testbed report"
    return Content(title, html, as_json(charts, curves, reached))


def _page(content: Content) -> str:
    from plotly.offline import get_plotlyjs

    scripts = [_script(get_plotlyjs()), _script(resource(REPORT, "report.js"))]
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"script-src {' '.join(map(_hash, scripts))}; base-uri 'none'; form-action 'none'"
    )
    return framed(content, policy, "\n".join(f"<script>{script}</script>" for script in scripts))


def framed(
    content: Content, policy: str, scripts: str, *, style: str = "", events: str = ""
) -> str:
    """Return the page around a content.

    Args:
        policy: its Content-Security-Policy.
        scripts: the elements of its scripts.
        style: rules of its own, after the report's.
        events: the address of the events that tell of newer contents, if there are any.
    """
    from markupsafe import Markup

    return render(
        REPORT,
        "page.html.j2",
        policy=Markup(policy),
        style=Markup(resource(REPORT, "report.css") + style),
        content=replace(content, html=Markup(content.html), data=Markup(content.data)),
        scripts=Markup(scripts),
        events=events,
    )


def render(package: str, template: str, **values: Any) -> str:
    """Return a package's template with values in it, of which text is escaped.

    The filter ``code`` is for sentences that the terminal shows as well, with keys in backquotes.
    """
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader(package, "")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader)
    environment.filters["code"] = _with_code
    return environment.get_template(template).render(values)


def _with_code(sentence: str) -> str:
    """Return a sentence as HTML, what stands in backquotes as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


def _details(name: str, run: RecordedRun) -> dict[str, object]:
    """Return the template's values for one run, other than those of the table."""
    from markupsafe import Markup

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
        "tables": tables_of(run),
        "use": in_words(run),
        "fidelity": fidelity_in_words(run),
        "links": in_a_sentence(run).get("links"),
        "network": Markup(svg(drawn, alone=False)) if (drawn := picture_of(run)) else "",
        "ended": summary.ended,
        "reason": summary.reason,
        "reconstructed": summary.reconstructed,
        "diverged_at": run.evaluations.diverged_at,
        "never_struck": fault_table.never_struck(run),
        "verdict": verdict(run),
        "differences": summary.traffic.differences if summary.traffic else (),
        "facts": facts,
        "specification": run.specification,
        "output": {name: text for name, text in last_lines(run).items() if text},
        "events": grave[-_EVENTS:],
        "events_left_out": max(0, len(grave) - _EVENTS),
    }


def resource(package: str, name: str) -> str:
    """Return the text of a file in a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """Return script text as the page's parser will see it, because its hash is taken of that."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
