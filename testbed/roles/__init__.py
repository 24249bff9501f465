"""The loops inside the nodes, and the only place where sockets, clocks and algorithms meet.

``entry`` is what the fork server calls; ``server``, ``worker`` and ``evaluator`` are the roles.
"""
