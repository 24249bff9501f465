"""GA: Gap-Aware, which divides each gradient by its gap (paper 002, Algorithms 4 and 14).

G = |θ − θ^i| / C + 1; v ← γ·v + g/G; θ ← θ − η·v, with θ^i what worker i was last sent. How C is found,
and the gap's three versions: ``testbed.algorithms.gap``. A gap of 0 gives G = 1: with one worker GA is
Momentum-ASGD. Weight decay is part of the gradient, and is divided with it (C.5). With ``nesterov``, as
in the paper's experiments (§6), θ ← θ − η·(g/G + γ·v); C still comes from v, as in the group's port.
"""

from typing import Literal

from testbed.algorithms.momentum_asgd import Momentum
from testbed.algorithms.rule import GapOptions, GapRule, NesterovOptions


class GaOptions(GapOptions, NesterovOptions):
    """GA's parameters; by default the paper's: a gap for each parameter."""

    name: Literal["ga"] = "ga"


class Ga(GapRule):
    """GA (Algorithms 4 and 14)."""

    options_type, half = GaOptions, Momentum
