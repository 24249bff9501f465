"""DBW: dynamic backup workers.

Xu, Neglia, Sebastianelli: *Dynamic backup workers for parallel machine learning*, Computer Networks
2021 (IFIP Networking 2020). Numbers are those of its §3 and §4.
"""

from reproduction.paper import Paper
from reproduction.papers.dbw.lines import (
    ALPHA_OF_FIG4,
    ALPHA_OF_INGRESS,
    REPOSITORY,
    WAITED_FOR_OF_INGRESS,
)
from reproduction.papers.dbw.parts import AT_CPU, AT_PAPER, FIG7
from reproduction.papers.dbw.scales import CPU, PAPER_SCALE, TINY
from testbed.experiment.spec import Spec

_OF_TRAFFIC = ("dbw-ingress", "dbw-ingress-pull")
_OF_ACCURACY = ("dbw-cifar", "dbw-static-cifar")


def _unshown(spec: Spec) -> tuple[str, ...]:
    """Return the columns that no page shows of a run.

    All pages show the exact training loss over time, Figs. 4 and 5 the accuracy as well, and
    the page on ingress the traffic.
    """
    of_fig4 = spec.name in ("dbw-dynamic", "dbw-static")
    alpha = getattr(spec.compute, "alpha", None)
    of_accuracy = spec.name in _OF_ACCURACY or (of_fig4 and alpha == ALPHA_OF_FIG4)
    of_traffic = spec.name in _OF_TRAFFIC or (
        of_fig4
        and alpha == ALPHA_OF_INGRESS
        and spec.algorithms[0].label != "b-dbw"
        and getattr(spec.algorithms[0], "wait_for", None) in WAITED_FOR_OF_INGRESS
    )
    unshown = () if of_accuracy else ("accuracy",)
    return (*unshown, "loss", *(() if of_traffic else ("payload_bytes", "wire_bytes")))


PAPER = Paper(
    name="dbw",
    title="The DBW paper, reproduced",
    reference="Xu, Neglia, Sebastianelli: *Dynamic backup workers for parallel machine learning*, "
    "2021.",
    parts=AT_CPU,
    parts_at={PAPER_SCALE.name: AT_PAPER},
    scales=(CPU, PAPER_SCALE, TINY),
    measurements=(FIG7,),
    unshown=_unshown,
    diagnostics=("k", "gain", "norm", "variance", "smoothness"),
    pages=REPOSITORY / "docs" / "reproduction" / "dbw",
)
