"""Devices as containers of a Docker engine.

``engine`` finds the engine and explains its errors, ``image`` finds the image of this code, ``fleet``
holds the containers of one run, and ``nodes`` makes nodes of them. ``role_connections`` and
``role_in_container`` are the two ends of starting a role by a container's own Python, and
``program_containers`` makes containers of programs of users. ``limits`` limits a container's processors
and finds out if it exceeded its memory, and ``leftovers`` finds what killed runs left.
"""
