"""AdaComp: the paper whose figures and table are reproduced first.

Hardy, Le Merrer, Sericola: *Distributed deep learning on edge-devices: feasibility via adaptive
compression*, IEEE NCA 2017. Numbers are those of its §V; accuracies are in percent.
"""

from reproduction.paper import Paper
from reproduction.papers.adacomp.lines import REPOSITORY
from reproduction.papers.adacomp.parts import PARTS
from reproduction.papers.adacomp.scales import FULL, QUICK, TINY

PAPER = Paper(
    name="adacomp",
    title="The AdaComp paper, reproduced",
    reference="Hardy, Le Merrer, Sericola: *Distributed deep learning on edge-devices: feasibility via "
    "adaptive compression*, IEEE NCA 2017.",
    parts=PARTS,
    scales=(FULL, QUICK, TINY),
    diagnostics=(),
    pages=REPOSITORY / "docs" / "reproduction" / "adacomp",
    runs_took="The paper: about a day and a half for each run, on 32 cores.",
)
