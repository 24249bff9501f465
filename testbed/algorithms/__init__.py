"""The algorithms, by the names they have in an experiment file.

Adding one is one new module beside these and one line in ``ALGORITHMS``; nothing else needs to know
its name.
"""

from testbed.algorithms.adacomp import AdaComp
from testbed.algorithms.asgd import Asgd
from testbed.algorithms.comp_asgd import CompAsgd
from testbed.algorithms.interface import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    "asgd": Asgd,
    "comp-asgd": CompAsgd,
    "adacomp": AdaComp,
}
