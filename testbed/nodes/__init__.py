"""Nodes: the containers that are the devices. They know nothing of learning or of networks.

``node_interface`` lists what every kind of node can do, and ``namespaces`` makes nodes of namespaces.
``linux`` holds the kernel calls that Python lacks, ``user_namespace`` lets an ordinary user make them,
``control_group`` holds a run's cgroups, and ``fork_server`` is the process that forks the roles, which
share one copy of the heavy libraries.
"""
