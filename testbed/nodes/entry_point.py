"""Functions by their names: nodes receive the name of what they load, and so need not import it."""

import importlib
import operator
from typing import Any


def resolve(name: str) -> Any:
    """Return the object that ``module:attribute`` names; the attribute may have dots."""
    module, _, attribute = name.partition(":")
    return operator.attrgetter(attribute)(importlib.import_module(module))
