"""The panels of runs with a measure of their own, such as perplexity, which have no accuracy there."""

from dashboards.page import Row
from dashboards.panels import Number
from dashboards.selection import RUN, RUNS, of
from dashboards.xy import Against, Axis

CHOSEN = 'measure=~"$measure"'
LAST = f"last_over_time(testbed_measured{{{RUNS}, {CHOSEN}}}[$__range])"
VALUE = Axis("$measure", "none", f"max by (run, algorithm) ({of('testbed_measured', CHOSEN)})")
EVALUATED = of("testbed_evaluated_ingress_bytes", 'layer="$layer"')
MEASURES = Row(
    "Measure of the runs' own: $measure",
    12,
    (
        Number(
            "Last $measure",
            "The value at the last evaluation, and whether a lower or a higher one is better.",
            "none",
            {f"{{{{better}}}} is better: {RUN}": f"max by (run, algorithm, better) ({LAST})"},
            width=6,
        ),
        Against(
            "$measure against ingress",
            "A point for each evaluation: the value of a version, and what had entered the parameter "
            "server when that version was reached. Further left is better; the panel beside it says "
            "whether up or down is.",
            Axis("PS ingress, $layer bytes", "decbytes", f"max by (run, algorithm) ({EVALUATED})"),
            VALUE,
            width=9,
            logarithmic=True,
        ),
        Against(
            "$measure against updates",
            "The same against the version that was evaluated.",
            Axis(
                "updates",
                "locale",
                f"max by (run, algorithm) ({of('testbed_evaluated_updates')})",
            ),
            VALUE,
            width=9,
        ),
    ),
    repeated_for="measure",
)
"""A row for each measure: without any, its panels are empty."""
