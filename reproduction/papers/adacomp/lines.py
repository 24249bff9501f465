"""The lines of AdaComp's figures and the rows of its table, with the accuracies that it gives."""

from dataclasses import replace
from pathlib import Path

from reproduction.series import Series, Study

REPOSITORY = Path(__file__).parents[3]
_EXPERIMENTS = REPOSITORY / "experiments" / "adacomp"


def _study(file: str) -> Study:
    return Study(_EXPERIMENTS / f"{file}.yaml")


def _line(name: str, title: str, file: str, label: str, accuracy: float | None = None) -> Series:
    return Series(name, title, _study(file), label, accuracy)


def lines_of_fig3(file: str) -> tuple[Series, ...]:
    """Return the lines of Fig. 3, from its own experiment file or from one like it."""
    return tuple(replace(one, study=_study(file)) for one in FIG3)


FIG1 = (_line("asgd", "ASGD", "fig1", "asgd", 97.85),)
FIG3 = (
    _line("asgd", "ASGD", "fig3", "asgd", 97.85),
    _line("comp-asgd-0.1", "Comp-ASGD, c = 0.1", "fig3", "comp-asgd-0.1", 96.07),
    _line("comp-asgd-0.01", "Comp-ASGD, c = 0.01", "fig3", "comp-asgd-0.01", 95.11),
    _line("adacomp-0.1", "AdaComp, c = 0.1", "fig3", "adacomp-0.1", 98.7),
    _line("adacomp-0.01", "AdaComp, c = 0.01", "fig3", "adacomp-0.01", 98.59),
)
PER_TENSOR = tuple(
    _line(
        f"comp-asgd-{ratio}-per-tensor{suffix}",
        f"Comp-ASGD per tensor, c = {ratio}{rate}",
        f"fig3-per-tensor{suffix}",
        f"comp-asgd-{ratio}",
        accuracy,
    )
    for suffix, rate in (("", ""), ("-wide", ", α = 0.1, waits from 0"))
    for ratio, accuracy in (("0.1", 96.07), ("0.01", 95.11))
)
# §V-C gives no numbers of lower c, and §III-B none of random selection.
SELECTION = (
    *(one for one in FIG3 if not one.name.endswith("-0.1")),
    *(
        _line(f"adacomp-{ratio}", f"AdaComp, c = {ratio}", "selection", f"adacomp-{ratio}")
        for ratio in ("0.001", "0.0001")
    ),
    _line("comp-asgd-random", "Comp-ASGD, c = 0.01, random", "selection", "comp-asgd-random"),
)
TABLE2 = tuple(
    _line(name, title, f"table2-{name}", "adacomp-0.01", accuracy)
    for name, title, accuracy in (
        ("60000", "60,000 images, no crash, n = 200", 97.44),
        ("60000-crashes", "60,000 images, crashes, n = 200", 97.17),
        ("12000", "12,000 images, no crash, n = 200", 95.47),
        ("12000-crashes", "12,000 images, crashes, n = 200", 95.24),
        ("6000", "6,000 images, no crash, n = 100", 94.35),
    )
)
# The text of §V-E says c = 0.001, but §V-C gives 98.59 as the accuracy of c = 0.01.
FIG4 = tuple(
    _line(
        f"{images}-{classes}-{ratio}",
        f"{images[:2]},000 images, {classes} class{'es' * (classes != 'one')}, c = {ratio}",
        f"fig4-{images}-{classes}",
        f"adacomp-{ratio}",
        accuracy,
    )
    for ratio in ("0.01", "0.001")
    for images, classes, accuracy in (
        ("60000", "one", 98.59),
        ("60000", "three", 98.36),
        ("12000", "one", 97.66),
        ("12000", "three", 97.0),
    )
)
