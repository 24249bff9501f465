"""The emulated network: nodes and routers, and routed veth links between them.

``links`` has a link and its addresses, ``graph`` a whole network and its routes, ``building`` builds
it, ``shaping`` sets rates, ``fair_queues`` shares them, ``outages`` takes links down, and ``probe``
measures them. This package knows nothing of containers except the network namespaces it is given, and
nothing of learning.
"""
