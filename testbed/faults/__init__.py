"""The faults of a run: which devices they strike, when, how, and for how long.

The seed alone decides, under both clocks. This package carries out no fault: the virtual clock does
that, or the orchestrator and its agent.
"""
