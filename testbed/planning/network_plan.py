"""Make the network of a run: its devices, its routers, and the links between them."""

from collections.abc import Sequence

from testbed.device_names import EVALUATOR_NAME, SERVER_NAME, peer_name, worker_name
from testbed.experiment.sections.device_classes import DeviceClassSpec
from testbed.experiment.spec import Spec
from testbed.network.graph import Network
from testbed.network.links import MOST_LINKS, Link, Shape


def network_of(spec: Spec, *, served: bool, class_of: Sequence[int]) -> Network:
    """Return the network of a run with one algorithm.

    The server's link has index 0, the evaluator's 1, and the workers' and peers' are after them. A
    simulation has at most as many links as the address plan.

    Args:
        served: True if there is a server.
        class_of: the class of each worker or peer; empty without classes.
    """
    count = spec.devices.workers
    shapes = [_shapes(spec, device_class) for device_class in spec.devices.classes or (None,)]
    # Neither the server's own link, where ingress is counted, nor the evaluator's is shaped: the
    # evaluator measures and is no part of what is measured.
    links = [Link(SERVER_NAME, 0)] if served else []
    links.append(Link(EVALUATOR_NAME, 1))
    name = worker_name if served else peer_name
    links += [
        Link(name(i), 2 + i, *shapes[class_of[i] if class_of else 0])
        for i in range(count if spec.engine == "emulation" else min(count, MOST_LINKS - 2))
    ]
    return Network(tuple(links))


def _shapes(spec: Spec, section: DeviceClassSpec | None) -> tuple[Shape, Shape]:
    """Return uplink and downlink of a class's devices; of all devices without classes."""
    # Under the virtual clock a message's time is computed, and the real links are not shaped.
    if spec.clock == "virtual":
        return Shape(), Shape()
    uplink, downlink, delay, loss = (
        getattr(spec.network, key)
        if section is None
        else section.of(key, getattr(spec.network, key))
        for key in ("uplink", "downlink", "delay", "loss")
    )
    return Shape(uplink, delay, loss), Shape(downlink)
