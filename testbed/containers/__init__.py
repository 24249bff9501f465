"""Devices as containers of a Docker engine.

``engine`` finds the engine and explains its errors, ``image`` finds the image of this code, ``fleet``
holds the containers of one run, and ``nodes`` makes nodes of them. ``gate`` and ``inside`` are the two
ends of starting a role by a container's own Python, and ``programs`` makes containers of programs of
users. ``processors`` limits a container, ``out_of_memory`` finds out if it exceeded its memory, and
``left_over`` finds what killed runs left.
"""
