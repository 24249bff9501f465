"""Fig. 8 on eight machines with the paper's own network for MNIST, where ``mnist`` has AdaComp's CNN.

Its claims are those of Fig. 8 about eight machines, and the factor of Table 1.
"""

from reproduction.drawing import SECONDS, Against
from reproduction.paper import Part
from reproduction.papers.ako import lines
from reproduction.papers.ako.mnist import (
    CAPTION,
    MNIST,
    SERVERS,
    accuracy_at,
    curves,
    on_eight,
    times,
)
from reproduction.papers.ako.scales import NETWORK_SECONDS
from reproduction.races import TimesFaster

_HALF = NETWORK_SECONDS / 2
FIG8_NETWORK = Part(
    "fig8-network",
    "Fig. 8 with the paper's own network, 8 machines",
    "(b) validation accuracy over 20 minutes on 8 machines, (c) beside TensorFlow. Ako and PS* "
    "converge alike, All-to-All and TF[7+1] and TF[6+2] more slowly; PS* is PS[7+1]. Here, as there, "
    "with 10, 20 and 100 maps and 200 units; the kernels, of 5 × 5, 5 × 5 and 4 × 4, are ours. 20 "
    f"minutes are {NETWORK_SECONDS:g} s of the virtual clock. With one server TF[7+1] is PS[7+1].",
    lines.OF_NETWORK,
    (times(MNIST, accuracy_at(_HALF), accuracy_at(NETWORK_SECONDS)),),
    (
        Against(
            SECONDS,
            curves=curves(lines.OF_NETWORK, ("ako", "all-to-all", *SERVERS, "tf-6+2")),
            target=MNIST,
        ),
    ),
    (
        *on_eight("ako", "all-to-all", _HALF),
        TimesFaster(
            "ako", ("all-to-all",), MNIST, 2, f"Ako is 2 times faster to {MNIST} than All-to-All"
        ),
    ),
    caption=CAPTION,
)
