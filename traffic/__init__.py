"""Who sent how many bytes to whom, when: kernel counters of network interfaces and queues.

This package knows nothing of training. It is given a network namespace and an interface (and, from
the next release on, a capture file) and answers in frames and bytes.
"""
