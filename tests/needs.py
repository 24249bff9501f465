"""The things that tests need of the host that runs them."""

import functools

from testbed.doctor.attempts import make_namespaces, try_in_child


@functools.cache
def why_no_namespaces() -> str:
    """Return why namespaces cannot be made here; an empty text if they can."""
    return try_in_child(make_namespaces)
