"""The texts of events by which a reader of a run directory recognises what happened."""

MADE = "the nodes are made"
BUILT = "the network is built"
TRAINING = "training begins"
PROGRAMS = "the programs begin"
REMOVED = "nodes and links are removed, after "
"""Followed by the seconds that the removal took."""
RESUMED = "resumed from "
"""Followed by the checkpoint, or the beginning, from which a new session of the run goes on."""
SUSPECTED = "is suspected"
WELCOMED = "welcomed back"
DIED = "died: "
"""Between the device's name and the way in which it died."""


def begins_with(version: int) -> str:
    """Return what is said of a killed peer that is back with its parameters of a version."""
    return (
        f"goes on with its parameters of version {version:,}"
        if version
        else "begins with the initial parameters"
    )
