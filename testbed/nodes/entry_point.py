"""Functions by their names: what nodes load is named to them, so that they need not know it."""

import importlib
import operator
from typing import Any


def resolve(name: str) -> Any:
    """What ``module:attribute`` names; the attribute may have dots."""
    module, _, attribute = name.partition(":")
    return operator.attrgetter(attribute)(importlib.import_module(module))
