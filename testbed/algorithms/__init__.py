"""The algorithms, by the names they have in an experiment file.

A new algorithm is a new module in this package and one line in ``ALGORITHMS``; no other code needs to
know its name. An algorithm outside of this package is named ``module:Class``, or by an entry point
(``testbed.plugins``).
"""

import functools

from pydantic import create_model

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.adam import Adam, AdamGa, AdamSa
from testbed.algorithms.ako import Ako
from testbed.algorithms.all_to_all import AllToAll
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.backup_workers.adasync import AdaSync
from testbed.algorithms.backup_workers.dynamic import DynamicBackupWorkers
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.algorithms.dana import Dana, DanaGa, DanaSa
from testbed.algorithms.dc_asgd import DcAsgd
from testbed.algorithms.diagnostic import Diagnostic
from testbed.algorithms.downpour import Downpour
from testbed.algorithms.easgd import Easgd
from testbed.algorithms.fedavg import FedAvg
from testbed.algorithms.gap_aware import Ga
from testbed.algorithms.hierarchical import Hierarchical
from testbed.algorithms.interface import Algorithm, Options
from testbed.algorithms.momentum_asgd import MomentumAsgd, NagAsgd
from testbed.algorithms.ring import Ring
from testbed.algorithms.roles import Part
from testbed.algorithms.staleness_aware import Sa, SaGradient
from testbed.algorithms.synchronous_sgd import SynchronousSgd
from testbed.algorithms.tokens import SynchronousByTokens
from testbed.errors import SpecError
from testbed.plugins.names import check_complete, find, is_plugin

ALGORITHMS: dict[str, type[Algorithm]] = {
    "asgd": Asgd,
    "comp-asgd": CompAsgd,
    "adacomp": AdaComp,
    "momentum-asgd": MomentumAsgd,
    "nag-asgd": NagAsgd,
    "sa": Sa,
    "sa-gradient": SaGradient,
    "ga": Ga,
    "dana": Dana,
    "dana-sa": DanaSa,
    "dana-ga": DanaGa,
    "adam": Adam,
    "adam-sa": AdamSa,
    "adam-ga": AdamGa,
    "dc-asgd": DcAsgd,
    "downpour": Downpour,
    "easgd": Easgd,
    "sync-sgd": SynchronousSgd,
    "sync-tokens": SynchronousByTokens,
    "fedavg": FedAvg,
    "dbw": DynamicBackupWorkers,
    "adasync": AdaSync,
    "hierarchical": Hierarchical,
    "all-to-all": AllToAll,
    "ako": Ako,
    "ring": Ring,
}


ENTRY_POINTS = "testbed.algorithms"
"""The group of entry points by which installed packages give their algorithms short names."""


def algorithm_named(name: str) -> type[Algorithm]:
    """Return the algorithm of a name.

    Raises:
        SpecError: there is none, its module cannot be imported, or it is no algorithm.
    """
    found = find(name, ALGORITHMS, ENTRY_POINTS)
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise SpecError(
            f"'{name}' is no algorithm: it must be a class derived from ServedAlgorithm, "
            "AggregatedAlgorithm or PeerAlgorithm of testbed.algorithms.interface"
        )
    check_complete(name, found, found.parts)
    if wrong := [one for one in found.diagnostics if not isinstance(one, Diagnostic)]:
        raise SpecError(
            f"'{name}': {wrong[0]!r} in its diagnostics is no "
            "testbed.algorithms.diagnostic.Diagnostic"
        )
    return found


def options_type(name: str) -> type[Options]:
    """Return the type of the options of an algorithm.

    Raises:
        SpecError: as ``algorithm_named``; or it has none.
    """
    options = getattr(algorithm_named(name), "options_type", None)
    if not (isinstance(options, type) and issubclass(options, Options)):
        raise SpecError(
            f"'{name}' has no options_type: give it a class derived from Options, which may be empty"
        )
    return options if name in ALGORITHMS else _with_any_name(options)


@functools.cache
def _with_any_name(options: type[Options]) -> type[Options]:
    """Return options with any name: what could be built in, with its own name, may be a plug-in."""
    if options.model_fields["name"].annotation is str:
        return options
    return create_model(options.__name__, __base__=options, name=(str, ...))


def plugin_options(name: str) -> type[Options] | None:
    """Return the type of the options of a plug-in's algorithm; None if the name is none of a plug-in.

    Raises:
        SpecError: as ``options_type``.
    """
    return options_type(name) if is_plugin(name, ALGORITHMS, ENTRY_POINTS) else None


def has(name: str, part: Part) -> bool:
    """Return True if the algorithm of this name has roles of a part."""
    return part in algorithm_named(name).parts
