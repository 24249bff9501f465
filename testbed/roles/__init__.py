"""The main loops of the devices, and the only place where sockets, clocks and algorithms meet.

The fork server calls ``entry``; the roles are in ``server``, ``worker``, ``evaluation`` and ``peer``.
"""
