"""Nodes: the containers that stand for devices. They know nothing of learning or of networks.

``linux`` holds the kernel calls Python lacks, ``user_namespace`` makes an ordinary user able to use
them, ``node`` is a container made of namespaces, ``control_group`` its cgroup, and ``fork_server``
the process that forks roles which share one copy of the heavy libraries.
"""
