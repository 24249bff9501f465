"""The faults of a run: which devices they strike, when, how, and for how long.

The seed alone decides all of it, under either clock and however often it is asked for. Nothing is
carried out here: the virtual clock does that, or the orchestrator and its agent.
"""
