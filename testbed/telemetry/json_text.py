"""JSON for files and for ``--json``: never ``Infinity`` or ``NaN``, which are not JSON."""

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON; a float that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
