"""Fig. 13, with AdaComp's CNN on Fashion-MNIST and with the paper's own network for ImageNet."""

from reproduction.claims import Exceeds
from reproduction.drawing import SECONDS, Against
from reproduction.measures import Line
from reproduction.paper import Part, Section
from reproduction.papers.ako import lines
from reproduction.papers.ako.claims import Factor, at
from reproduction.papers.ako.mnist import CAPTION, accuracy_at
from reproduction.papers.ako.scales import ACCUMULATION_SECONDS, LENGTH
from reproduction.series import Series
from reproduction.tables import LineTable, greatest

_SHOWS = (
    "Validation accuracy over time of Ako with and without accumulation, 8 machines: nearly 40 % "
    "and about 20 % at best. The paper does not give p: here it is 3, by equation (3) at "
)
_MOMENTS = (LENGTH, ACCUMULATION_SECONDS)
_LINES = {"": "by (3)", "-20": "= 20"}
"""The ends of the lines' names, and what they say of p."""


def _part(name: str, title: str, shows: str, series: tuple[Series, ...]) -> Part:
    columns = (*map(accuracy_at, _MOMENTS), greatest("the best of the run, %"))
    return Part(
        name,
        title,
        _SHOWS + shows,
        series,
        (Section("Accuracy", (LineTable("", columns),)),),
        (Against(SECONDS),),
        (
            *(
                Exceeds(f"with{end}", f"without{end}", at(moment), f"at {moment:g} s is above")
                for moment in _MOMENTS
                for end in _LINES
            ),
            *(
                Factor(
                    f"with{end}",
                    f"without{end}",
                    Line.greatest,
                    2,
                    f"p {p}: the best accuracy with accumulation is twice that without",
                )
                for end, p in _LINES.items()
            ),
        ),
        caption=CAPTION,
    )


FIG13 = _part(
    "fig13",
    "Fig. 13: the benefit of gradient accumulation",
    "the links of Fig. 9, and 20.",
    lines.FIG13,
)
FIG13_NETWORK = _part(
    "fig13-network",
    "Fig. 13 with the paper's own network",
    "links that are faster than those of Fig. 9 by as much as the network is larger, and 20. The "
    "network has 32, 64 and 256 maps and 800 units, as there; the kernels, of 5 × 5, 5 × 5 and "
    "4 × 4, and images of 32 × 32 are ours. The images are CIFAR-10's, as JPEG.",
    lines.FIG13_NETWORK,
)
