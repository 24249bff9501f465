"""The kinds of a run's events: a reader of ``events.jsonl`` goes by them, a person by the sentences."""

from enum import StrEnum


class EventKind(StrEnum):
    """The kind of an event."""

    REMARK = "remark"
    """Anything that only a person reads."""
    NODES_MADE = "nodes-made"
    NETWORK_BUILT = "network-built"
    TRAINING_BEGAN = "training-began"
    PROGRAMS_BEGAN = "programs-began"
    REMOVED = "removed"
    """All nodes and links are removed."""
    RESUMED = "resumed"
    """A new session of the run goes on from a checkpoint, or from the beginning."""
    SUSPECTED = "suspected"
    WELCOMED = "welcomed"
    """A suspected worker takes part again."""
    WENT_BACK = "went-back"
    """A restored server goes on without what came after its checkpoint; it suspects no worker yet."""
    DIED = "died"
    """A device's process has ended, which no fault explains."""
    HOST_LOST = "host-lost"
    """A host of the run is lost; an event of each of its devices says that it died."""
    RETURNED = "returned"
    """A killed peer is back."""
    ENDED = "ended"
    """Why the run is not ``completed``."""


SENTENCES = {
    EventKind.NODES_MADE: "the nodes are made",
    EventKind.NETWORK_BUILT: "the network is built",
    EventKind.TRAINING_BEGAN: "training begins",
    EventKind.PROGRAMS_BEGAN: "the programs begin",
}
"""The sentences of the events that have always the same."""
