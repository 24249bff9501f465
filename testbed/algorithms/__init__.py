"""The algorithms, by the names they have in an experiment file.

Adding one is one new module beside these and one line in ``ALGORITHMS``; nothing else needs to know
its name.
"""

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.all_to_all import AllToAll
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.algorithms.interface import PeerAlgorithm, ServedAlgorithm
from testbed.algorithms.synchronous_sgd import SynchronousSgd

ALGORITHMS: dict[str, type[ServedAlgorithm] | type[PeerAlgorithm]] = {
    "asgd": Asgd,
    "comp-asgd": CompAsgd,
    "adacomp": AdaComp,
    "sync-sgd": SynchronousSgd,
    "all-to-all": AllToAll,
}


def is_served(name: str) -> bool:
    """Whether the algorithm of this name has a parameter server; otherwise it has peers."""
    return issubclass(ALGORITHMS[name], ServedAlgorithm)


def served(name: str) -> type[ServedAlgorithm]:
    """The algorithm of this name, which must be one with a parameter server."""
    algorithm = ALGORITHMS[name]
    assert issubclass(algorithm, ServedAlgorithm), name
    return algorithm
