"""DBW's figures: what is shown of each, and what the paper says of it."""

from reproduction.drawing import SECONDS, Against
from reproduction.paper import Part
from reproduction.papers.dbw import lines
from reproduction.series import Series


def _part(name: str, series: tuple[Series, ...]) -> Part:
    return Part(name, name, name, series, (), (Against(SECONDS, measure="loss"),))


PARTS = tuple(
    _part(name, series)
    for name, series in {
        "fig1": lines.FIG1,
        "fig2": lines.FIG2,
        "fig3": lines.FIG3,
        "fig4": lines.FIG4,
        "fig5": lines.FIG5,
        "fig6": lines.FIG6,
        "fig8": lines.FIG8,
        "fig9": lines.FIG9,
        "fig10": lines.FIG10,
        "knee": lines.KNEE,
        "ingress": lines.INGRESS,
    }.items()
)
