"""Who sent how many bytes to whom, when, and of what kind.

Knows nothing of training or of the testbed: it is given a network interface, or a pcap or pcapng
file. ``capture`` writes what passes an interface, headers only, into a file (``ring``, ``filters``,
``pcapng_writing``); ``records`` and ``headers`` read such files in blocks, vectorised, and
``accounting`` says what they come to as frames on a link; ``counters`` samples the kernel's own
counters.

``python -m traffic`` is its command line.
"""


class TrafficError(Exception):
    """What a person should know about a capture or an interface: one sentence."""
