"""Devices as containers of a Docker engine.

``engine`` finds the engine and says what is wrong with it, ``image`` knows which image belongs to this
code, ``fleet`` is the containers of one run, ``nodes`` makes nodes of them, ``gate`` and ``inside`` are
the two ends of starting a role by a container's own Python, and ``left_over`` finds what killed runs
left.
"""
