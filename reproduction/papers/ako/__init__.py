"""Ako: partial gradient exchange.

Watcharapichat, Lopez Morales, Fernandez, Pietzuch: *Ako: Decentralised Deep Learning with Partial
Gradient Exchange*, SoCC 2016. Numbers are those of its §2.3 and §5.
"""

from reproduction.paper import Paper
from reproduction.papers.ako.lines import REPOSITORY
from reproduction.papers.ako.mnist import MEASURED
from reproduction.papers.ako.parts import PARTS
from reproduction.papers.ako.scales import CPU, TINY, WALL

PAPER = Paper(
    name="ako",
    title="The Ako paper, reproduced",
    reference="Watcharapichat, Lopez Morales, Fernandez, Pietzuch: *Ako: Decentralised Deep "
    "Learning with Partial Gradient Exchange*, SoCC 2016.",
    parts=PARTS,
    scales=(CPU, WALL, TINY),
    parts_at={WALL.name: (MEASURED,)},
    diagnostics=(),
    pages=REPOSITORY / "docs" / "reproduction" / "ako",
)
