"""Gap-Aware: the paper of thirteen asynchronous systems and their gap.

Barkai, Hakimi, Schuster: *Gap-Aware Mitigation of Gradient Staleness*, ICLR 2020. Numbers are those of
its tables; accuracies are in percent.
"""

from reproduction.paper import Paper
from reproduction.papers.gap_aware.convergence import COROLLARY1
from reproduction.papers.gap_aware.lines import REPOSITORY
from reproduction.papers.gap_aware.parts import AT_CPU, AT_PAPER
from reproduction.papers.gap_aware.scales import CPU, PAPER_SCALE, TINY
from reproduction.papers.gap_aware.times import FIG3, FIG12

PAPER = Paper(
    name="gap-aware",
    title="The Gap-Aware paper, reproduced",
    reference="Barkai, Hakimi, Schuster: *Gap-Aware Mitigation of Gradient Staleness*, ICLR 2020.",
    parts=AT_CPU,
    scales=(CPU, PAPER_SCALE, TINY),
    pages=REPOSITORY / "docs" / "reproduction" / "gap-aware",
    parts_at={PAPER_SCALE.name: AT_PAPER},
    measurements=(FIG3, FIG12, COROLLARY1),
    diagnostics=("gap", "delay"),
)
