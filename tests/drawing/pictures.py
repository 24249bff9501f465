"""Networks to draw."""

from collections.abc import Sequence

from testbed.drawing.drawn_network import ROOT, Picture, Way, Wire

MBIT = 10**6
SERVER = Wire("server", ROOT, True)
EVALUATOR = Wire("evaluator", ROOT, True)


def workers(numbers: Sequence[int], router: str = ROOT, *, counted: bool = False) -> list[Wire]:
    """Return the links of workers of 10 Mbit/s up and 50 Mbit/s down."""
    return [
        Wire(
            f"worker-{i}",
            router,
            True,
            Way(10 * MBIT, 0.02, 1_000_000 + i if counted else None, 0.3 if counted else None),
            Way(50 * MBIT, 0.0, 2_000_000 if counted else None, 0.06 if counted else None),
        )
        for i in numbers
    ]


def star(count: int, *, counted: bool = False) -> Picture:
    """Return a star of some workers."""
    return Picture("a star", [SERVER, EVALUATOR, *workers(range(count), counted=counted)])


def clusters(count: int, size: int, *, alike: bool = False) -> Picture:
    """Return clusters of some workers each; of links that differ, or that are alike."""
    wires = [SERVER, EVALUATOR]
    for one in range(count):
        up = Way((50 if alike else 50 + one) * MBIT, limits=size)
        wires += workers(range(one * size, (one + 1) * size), f"cluster-{one}")
        wires.append(Wire(f"cluster-{one}", ROOT, False, up, Way(300 * MBIT)))
    return Picture("clusters", wires)


def grid(width: int, height: int, *, positions: bool) -> Picture:
    """Return a grid of routers with a worker at the first, and the core beside the last."""
    names = {(x, y): f"r{x}-{y}" for x in range(width) for y in range(height)}
    wires = [SERVER, *workers([0], names[0, 0])]
    for (x, y), name in names.items():
        for beside in ((x + 1, y), (x, y + 1)):
            if beside in names:
                wires.append(Wire(name, names[beside], False, Way(100 * MBIT, conversations=x)))
    wires.append(Wire(names[width - 1, height - 1], ROOT, False))
    placed = {name: (float(x), 50.0 + y) for (x, y), name in names.items()} if positions else {}
    return Picture("a grid", wires, positions=placed)
