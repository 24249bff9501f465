"""The reports that are counted, because the orchestrator drops those that a restored server repeats.

Reports of several servers reach it in any order, so those of each server are counted apart.
"""

from collections import Counter

_OF_SERVER = ("updates", "evaluations")
_OF_RUN = ("faults", "suspicions")


def counted(kind: str, server: int) -> str:
    """Return the name under which a server's reports of a kind are counted."""
    return f"{kind} of server {server}" if server and kind in _OF_SERVER else kind


def no_reports(servers: int) -> Counter[str]:
    """Return the counts of a run with so many servers, all of them 0."""
    names = [counted(kind, server) for kind in _OF_SERVER for server in range(servers)]
    return Counter(dict.fromkeys([*names, *_OF_RUN], 0))
