"""Count the bytes between hosts: from which address to which, when, and of what kind.

This package knows nothing of training or of the testbed: it is given a network interface, or a pcap
or pcapng file. ``capture`` writes the headers of what passes an interface into files (``packet_ring``,
``filters``, ``pcapng_writing``). ``capture_files`` and ``headers`` read such files in vectorised
batches, and ``accounting`` counts them as frames on a link. ``counters`` samples the kernel's own
counters, and ``sockets`` those of each TCP connection, which ``socket_comparison`` compares with a
capture.

``python -m traffic`` is its command line.
"""


class TrafficError(Exception):
    """A problem with a capture or an interface; the message is one sentence for the user."""
