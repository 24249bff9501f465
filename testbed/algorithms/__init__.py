"""The algorithms, by the names they have in an experiment file.

A new algorithm is a new module in this package and one line in ``ALGORITHMS``; no other code needs to
know its name.
"""

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.all_to_all import AllToAll
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.algorithms.hierarchical import Hierarchical
from testbed.algorithms.interface import AggregatedAlgorithm, PeerAlgorithm, ServedAlgorithm
from testbed.algorithms.synchronous_sgd import SynchronousSgd

ALGORITHMS: dict[str, type[ServedAlgorithm] | type[PeerAlgorithm]] = {
    "asgd": Asgd,
    "comp-asgd": CompAsgd,
    "adacomp": AdaComp,
    "sync-sgd": SynchronousSgd,
    "hierarchical": Hierarchical,
    "all-to-all": AllToAll,
}


def is_served(name: str) -> bool:
    """Return True if the algorithm of this name has a parameter server, False if it has peers."""
    return issubclass(ALGORITHMS[name], ServedAlgorithm)


def served(name: str) -> type[ServedAlgorithm]:
    """Return the algorithm of this name, which must have a parameter server."""
    algorithm = ALGORITHMS[name]
    assert issubclass(algorithm, ServedAlgorithm), name
    return algorithm


def is_aggregated(name: str) -> bool:
    """Return True if the algorithm of this name has aggregators between its workers and its server."""
    return issubclass(ALGORITHMS[name], AggregatedAlgorithm)
