"""Carry a plan out: bring devices up, watch them train, take everything down again.

``run`` is the orchestrator, in the process that the user started; ``agent`` is the process that owns
the nodes and links on its behalf; ``injection`` makes faults happen.
"""
