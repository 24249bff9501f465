"""Conflicts of the links that several devices share with the rest of the file."""

from testbed.experiment.contents import Contents
from testbed.experiment.sections.section import Conflict
from testbed.experiment.sections.shared_links import cluster_conflicts


def of_shared_links(contents: Contents) -> list[Conflict]:
    """Return the conflicts of the server's own link and of the clusters."""
    network, peers = contents.network, contents.peers
    found: list[Conflict] = []
    given = [key for key in ("server", "clusters", "graph") if getattr(network, key)]
    if peers and contents.clock == "virtual":
        text = (
            f"the virtual clock has no shared links between peers ({peers[0]}) yet: take one of them "
            "out, or use `clock: wall`"
        )
        found += [(("network", key), text) for key in given]
    if network.server is not None and peers:
        text = f"peers ({peers[0]}) have no server: take it out"
        found.append((("network", "server"), text))
    if network.clusters and network.graph:
        text = "devices are in clusters, or attached to a graph: take one of them out"
        found.append((("network", "graph"), text))
    classes = [one.name for one in contents.devices.classes]
    return found + cluster_conflicts(network.clusters, contents.devices.workers, classes)
