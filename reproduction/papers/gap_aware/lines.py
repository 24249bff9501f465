"""The lines of Gap-Aware's figures and tables, at the scale of two cores and at the paper's."""

from dataclasses import replace
from pathlib import Path

from reproduction.papers.gap_aware.published import SEVEN, TABLE2, TABLE4, TABLE5, WORKERS
from reproduction.series import Key, Series, Study

REPOSITORY = Path(__file__).parents[3]
_EXPERIMENTS = REPOSITORY / "experiments" / "gap-aware"
ALL = {
    "asgd": "ASGD",
    "momentum-asgd": "ASGD with momentum",
    "nag-asgd": "NAG-ASGD",
    "sa": "SA",
    "sa-gradient": "SA-gradient",
    "ga": "GA",
    "ga-layer": "GA, layer-wise",
    "ga-model": "GA, global",
    "dana": "DANA",
    "dana-sa": "DANA-SA",
    "dana-ga": "DANA-GA",
    "dc-asgd": "DC-ASGD",
    "adam": "Adam",
    "adam-sa": "Adam-SA",
    "adam-ga": "Adam-GA",
}
"""The titles of all systems, by their labels in ``fig2.yaml``."""
ALONE = ("asgd", "momentum-asgd", "nag-asgd", "dana", "dana-ga", "adam")
"""The systems that differ with one worker: SA, SA-gradient, GA and DC-ASGD are momentum-ASGD there."""
ADAMS = {label: ALL[label] for label in ("adam", "adam-sa", "adam-ga")}
HETEROGENEOUS = 0.6
"""V_mach of machines that differ, §C.3."""
SMALL, LARGE = (8, 16, 32), (8, 32)
"""N at the scale of two cores: of all systems on Fashion-MNIST, and of the seven on CIFAR-10 (JPEG)."""
_GAP = (4, 8, 16, 24, 32)
"""N of Figure 4."""


def _study(file: str, *workers: int, variation: float | None = None) -> Study:
    keys: tuple[Key, ...] = (Key("devices.workers", workers, "N"),)
    if variation is not None:
        keys = (*keys, Key("compute.machine_variation", (variation,), "V_mach"))
    return Study(_EXPERIMENTS / f"{file}.yaml", keys)


def _one(file: str, labels: dict[str, str], accuracies: dict[str, float]) -> tuple[Series, ...]:
    """Return lines of one worker; the first is the paper's baseline."""
    return _study(file, 1).lines(labels, accuracies)


_TABLE4, _TABLE5 = dict(TABLE4), dict(TABLE5)
_BASELINE = {"nag-asgd": "One worker, NAG"}
ONE = _one("fig2", {label: ALL[label] for label in ALONE}, _TABLE4)
FIG2 = (*ONE, *_study("fig2", *SMALL).lines(ALL, _TABLE4))
TABLE4_SMALL = (
    *_one("table4", _BASELINE, _TABLE4),
    *_study("table4", *LARGE).lines(SEVEN, _TABLE4),
)
TABLE4_WHOLE = (
    *_one("table4", _BASELINE, _TABLE4),
    *_study("table4", *WORKERS).lines(SEVEN, _TABLE4),
)
TABLE5_WHOLE = (
    *_one("table5", _BASELINE, _TABLE5),
    *_study("table5", *WORKERS).lines(SEVEN, _TABLE5),
)
TABLE2_LINES = (
    *_study("table2", 1).lines({"adam": "Adam"}),
    *_study("table2", 4, 8).lines(ADAMS),
)
_WITH_GAP = {"ga": "GA", "dana-ga": "DANA-GA"}
FIG4_SMALL = _study("fig2", *SMALL).lines(_WITH_GAP)
FIG4_WHOLE = _study("table5", *_GAP).lines(_WITH_GAP)
AT_ONCE = 16
"""Workers of Fig. 7."""


def of_training(file: str) -> tuple[Series, ...]:
    """Return the lines of Fig. 7: one worker, and the seven systems."""
    return (*_one(file, _BASELINE, {}), *_study(file, AT_ONCE).lines(SEVEN))


DIFFERING = "-differing"


def different(name: str) -> str:
    """Return the name of the line of machines that differ."""
    return name.removesuffix(f"-{HETEROGENEOUS}") + DIFFERING


def _both(file: str, *workers: int) -> tuple[Series, ...]:
    """Return lines of alike machines and of machines that differ, with the same numbers of workers."""
    alike = _study(file, *workers).lines(SEVEN)
    differing = _study(file, *workers, variation=HETEROGENEOUS).lines(SEVEN)
    named = [
        replace(one, name=different(one.name), title=f"{one.title.partition(', V')[0]}, differing")
        for one in differing
    ]
    return (*alike, *named)


FIG13_SMALL = _both("fig2", *LARGE)
FIG13_WHOLE = _both("table4", *_GAP)
PERPLEXITIES = dict(TABLE2)
