"""DBW: dynamic backup workers.

Xu, Neglia, Sebastianelli: *Dynamic backup workers for parallel machine learning*, Computer Networks
2021 (IFIP Networking 2020). Numbers are those of its §3 and §4.
"""

from reproduction.paper import Paper
from reproduction.papers.dbw.lines import REPOSITORY
from reproduction.papers.dbw.parts import AT_CPU, AT_PAPER, FIG7
from reproduction.papers.dbw.scales import CPU, PAPER_SCALE, TINY

_BY_TRAINING_LOSS = (
    "dbw-adasync",
    "dbw-batches",
    "dbw-fig1",
    "dbw-fig3",
    "dbw-slowdown",
    "dbw-static-batches",
    "dbw-variants",
)
"""The experiments of which pages show the exact training loss over time: no test, and no traffic."""
PAPER = Paper(
    name="dbw",
    title="The DBW paper, reproduced",
    reference="Xu, Neglia, Sebastianelli: *Dynamic backup workers for parallel machine learning*, "
    "2021.",
    parts=AT_CPU,
    parts_at={PAPER_SCALE.name: AT_PAPER},
    scales=(CPU, PAPER_SCALE, TINY),
    measurements=(FIG7,),
    unshown=dict.fromkeys(_BY_TRAINING_LOSS, ("accuracy", "loss", "wire_bytes")),
    diagnostics=("k", "gain", "norm", "variance", "smoothness"),
    pages=REPOSITORY / "docs" / "reproduction" / "dbw",
)
