"""The algorithms, by the names they have in an experiment file.

A new algorithm is a new module in this package and one line in ``ALGORITHMS``; no other code needs to
know its name.
"""

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.all_to_all import AllToAll
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.algorithms.hierarchical import Hierarchical
from testbed.algorithms.interface import Algorithm
from testbed.algorithms.parts import Part
from testbed.algorithms.synchronous_sgd import SynchronousSgd

ALGORITHMS: dict[str, type[Algorithm]] = {
    "asgd": Asgd,
    "comp-asgd": CompAsgd,
    "adacomp": AdaComp,
    "sync-sgd": SynchronousSgd,
    "hierarchical": Hierarchical,
    "all-to-all": AllToAll,
}


def has(name: str, part: Part) -> bool:
    """Return True if the algorithm of this name has roles of a part."""
    return part in ALGORITHMS[name].parts
