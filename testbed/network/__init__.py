"""The emulated network: a star of routed veth links with a core namespace in the middle.

``addresses`` numbers the links, ``star`` builds them, ``shaping`` sets their rates. It knows nothing
of containers beyond the network namespaces it is given, and nothing of learning.
"""
