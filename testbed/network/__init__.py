"""The emulated network: a star of routed veth links with a core namespace in the middle.

``addresses`` numbers the links, ``star`` builds them, ``shaping`` sets their rates, ``outages`` takes
them down, and ``probe`` measures them. This package knows nothing of containers except the network
namespaces it is given, and nothing of learning.
"""
