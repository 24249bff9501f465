"""Places for the routers of a graph: those of its source, or else distances as in the graph.

Where a graph has no positions, the stress of a drawing (how far distances in it are from those in the
graph) is reduced step by step from a circle (de Leeuw's majorisation). The same graph always gets the
same places.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from testbed.drawing.drawn_network import Picture

_STEPS = 120
Places = Mapping[str, tuple[float, float]]


def places(picture: Picture, routers: Sequence[str], width: float, height: float) -> Places:
    """Return a place for each router within a rectangle, y downwards.

    Args:
        routers: those to place; the links between them connect them.
        width, height: of the rectangle; what is drawn keeps its proportions.
    """
    if all(router in picture.positions for router in routers):
        points = np.array([picture.positions[router] for router in routers])
        # Degrees of longitude are shorter than those of latitude; other units are not as large.
        middle = points[:, 1].mean()
        if np.abs(points[:, 1]).max() <= 90 and np.abs(points[:, 0]).max() <= 180:
            points[:, 0] *= np.cos(np.radians(middle))
        points[:, 1] *= -1
    else:
        points = _by_stress(_distances(picture, routers))
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.maximum(high - low, 1e-9)
    scale = min(width / span[0], height / span[1])
    shift = (np.array([width, height]) - scale * (high - low)) / 2
    placed = (points - low) * scale + shift
    return {router: (float(x), float(y)) for router, (x, y) in zip(routers, placed, strict=True)}


def _distances(picture: Picture, routers: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return the number of links between each two routers, shape (n, n)."""
    numbers = {router: number for number, router in enumerate(routers)}
    beside: list[list[int]] = [[] for _ in routers]
    for wire in picture.between:
        if wire.node in numbers and wire.router in numbers:
            one, other = numbers[wire.node], numbers[wire.router]
            beside[one].append(other)
            beside[other].append(one)
    found = np.full((len(routers), len(routers)), float(len(routers)))
    for start in range(len(routers)):
        found[start, start] = 0
        waiting = deque([start])
        reached = {start}
        while waiting:
            at = waiting.popleft()
            for other in beside[at]:
                if other not in reached:
                    reached.add(other)
                    found[start, other] = found[start, at] + 1
                    waiting.append(other)
    return found


def _by_stress(distances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return points, shape (n, 2), whose distances are close to those given."""
    count = len(distances)
    if count == 1:
        return np.zeros((1, 2))
    angles = 2 * np.pi * np.arange(count) / count
    points = distances.max() / 2 * np.column_stack([np.cos(angles), np.sin(angles)])
    weights = np.where(distances > 0, distances, 1.0) ** -2
    np.fill_diagonal(weights, 0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.pinv(laplacian)
    for _ in range(_STEPS):
        apart = points[:, None] - points[None]
        drawn = np.maximum(np.linalg.norm(apart, axis=2), 1e-9)
        ratio = weights * distances / drawn
        wanted = np.diag(ratio.sum(axis=1)) - ratio
        points = inverse @ wanted @ points
    # The longest way across lies level: pages are wider than high.
    _, _, axes = np.linalg.svd(points - points.mean(axis=0))
    turned: npt.NDArray[np.float64] = (points - points.mean(axis=0)) @ axes.T
    return turned
