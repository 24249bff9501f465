"""Carrying a plan out: bringing devices up, watching them train, taking everything down again.

``run`` is the orchestrator, in the process the person started; ``agent`` is the process that owns
the namespaces on its behalf; ``host`` checks beforehand that this host can do it.
"""
