"""The runs of Ako's figures, and their lines."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from reproduction.series import Key, Series, Study

REPOSITORY = Path(__file__).parents[3]
_EXPERIMENTS = REPOSITORY / "experiments" / "ako"
MACHINES = (16, 32, 64)
"""The clusters of Figs. 3 and 9."""
ALLOCATIONS = ((60, 4), (56, 8), (52, 12), (48, 16), (46, 18), (44, 20))
"""Workers and servers of Fig. 2."""
PARTITIONS = (1, 2, 3, 4, 6, 8)
"""p of Fig. 12; 1 is All-to-All with Ako's bound."""
USUAL, FASTER, HEAVIER = "100ms", "42ms", "400ms"
"""The time of a gradient: m4.xlarge; c4.2xlarge (8 cores of 2.9 GHz, not 4 of 2.4); images of twice the
sides."""
OF_TENSORFLOW = ((62, 2), (60, 4))
"""Workers and servers of TensorFlow, Fig. 10a: each layer is a variable, which one server holds."""
RATIOS = {"8:1": 8, "4:1": 4, "3:1": 3}
"""Machines to servers, of Fig. 3a."""


def _study(file: str, *keys: Key) -> Study:
    return Study(_EXPERIMENTS / f"{file}.yaml", keys)


def ps(workers: int, servers: int, mean: str = USUAL) -> str:
    """Return the name of the line PS[w+p], with another time of a gradient if one is given."""
    return f"ps-{workers}+{servers}" + f"-{mean}" * (mean != USUAL)


def servers(
    file: str,
    allocations: tuple[tuple[int, int], ...],
    mean: str | None = None,
    *,
    placement: Literal["apart", "co-located"] = "apart",
    allocation: Literal["ranges", "layers"] = "ranges",
    system: str = "PS",
    more: tuple[Key, ...] = (),
) -> tuple[Series, ...]:
    """Return the lines of allocations of machines to workers and servers.

    Args:
        mean: the time of a gradient, if it is not the file's.
        placement: co-located lines are those of servers on workers' machines.
        allocation: what of the parameters goes to which server.
        system: its name in titles.
        more: further keys of one value each.
    """
    together: dict[str, Any] = {"placement": placement} if placement != "apart" else {}
    together |= {"allocation": allocation} if allocation != "ranges" else {}
    devices = Key(
        "devices", tuple({"workers": w, "servers": s} | together for w, s in allocations), ""
    )
    keys = (devices,) if mean is None else (devices, Key("compute.mean", (mean,), "T"))
    keys = (*keys, *more)
    label = system.lower()
    return tuple(
        replace(
            one,
            name=ps(w, s, mean or USUAL).replace("ps", label, 1),
            title=f"{system}[{w}+{s}]" + f", T = {mean}" * (mean is not None),
        )
        for (w, s), one in zip(allocations, _study(file, *keys).lines({"ps": system}), strict=True)
    )


def tensorflow(file: str, allocations: tuple[tuple[int, int], ...]) -> tuple[Series, ...]:
    """Return the lines TF[w+p], whose servers hold whole layers."""
    return servers(file, allocations, allocation="layers", system="TF")


def with_ratio(machines: int, ratio: int) -> tuple[int, int]:
    """Return workers and servers, of which one of ``ratio`` machines is one, as in Fig. 3a."""
    count = round(machines / ratio)
    return machines - count, count


_SIZES = tuple(with_ratio(n, ratio) for n in MACHINES for ratio in RATIOS.values())
_WORKERS = "devices.workers"


def _peers(file: str, mesh: str, machines: tuple[int, ...] = (), *keys: Key) -> tuple[Series, ...]:
    """Return the lines of Ako and All-to-All, on several numbers of machines."""
    keys = (*((Key(_WORKERS, machines, "n"),) * bool(machines)), *keys)
    return (
        *_study(file, *keys).lines({"ako": "Ako"}),
        *_study(mesh, *keys).lines({"all-to-all": "All-to-All"}),
    )


OF_PEERS = _peers("peers", "all-to-all", MACHINES)
FIG2 = servers("servers", ALLOCATIONS)
SIZES = servers("servers", _SIZES)
HARDWARE = ((56, 8), (48, 16), (46, 18))
WORKLOADS = ((60, 4), (56, 8), (48, 16))
FIG3 = (
    *SIZES,
    *servers("servers", tuple(one for one in ((60, 4), (46, 18)) if one not in _SIZES)),
    *servers("servers", HARDWARE, FASTER),
    *servers("servers", WORKLOADS, HEAVIER),
)
CO_LOCATED = ((16, 2), (16, 4), (16, 8), (16, 16))
"""Of 16 machines: with 32 the clock takes 0.25 s for a gradient, whose messages all meet."""
FIG4 = servers("co-located", CO_LOCATED, placement="co-located")
EVERYWHERE = FIG4[-1:]
"""A server on each machine."""
FIG9 = (*OF_PEERS, *SIZES, *EVERYWHERE)
FIG10 = (
    *(one for one in OF_PEERS if one.values[_WORKERS] == MACHINES[-1]),
    *servers("servers", ((48, 16), (56, 8))),
    *tensorflow("servers", OF_TENSORFLOW),
)
_P = Key("algorithms.partitions", PARTITIONS, "p")
FIG12 = _study("sixteen", _P).lines({"ako": "Ako"})
FIG11 = tuple(
    replace(one, name=name, title=title)
    for name, title, one in (
        ("ako", "Ako, p = 3", FIG12[PARTITIONS.index(3)]),
        ("all-to-all", "All-to-All (p = 1)", FIG12[PARTITIONS.index(1)]),
        ("ps-12+4", "PS[12+4]", servers("sixteen-servers", ((12, 4),))[0]),
    )
)
_ACCUMULATION = {
    "with": "Ako, p by (3)",
    "without": "without accumulation, p by (3)",
    "with-20": "Ako, p = 20",
    "without-20": "without accumulation, p = 20",
}
FIG13 = _study("accumulation").lines(_ACCUMULATION)
FIG13_NETWORK = _study("accumulation-network").lines(_ACCUMULATION)
"""With the paper's network for ImageNet."""
OF_MNIST = (
    *_peers("mnist-peers", "mnist-all-to-all", (2, 4, 8)),
    *servers("mnist-servers", ((1, 1), (3, 1), (7, 1), (6, 2))),
    *tensorflow("mnist-servers", ((6, 2),)),
)
OF_NETWORK = (
    *_peers("network-peers", "network-all-to-all"),
    *servers("network-servers", ((7, 1), (6, 2))),
    *tensorflow("network-servers", ((6, 2),)),
)
"""Fig. 8's eight machines with the paper's own network."""
_VIRTUAL = Key("clock", ("virtual",), "clock")


def _slower(*keys: Key) -> tuple[Series, ...]:
    """Return the lines of the slower links and gradients that a host can keep up with."""
    return (
        *_peers("mnist-wall", "mnist-wall-all-to-all", (), *keys),
        *servers("mnist-wall-servers", ((7, 1), (6, 2)), more=keys),
    )


def _beside(line: Series) -> Series:
    """Return a line of the virtual clock under another name than the wall clock's."""
    name, title = line.name.removesuffix("-virtual"), line.title.split(", clock")[0]
    return replace(line, name=f"{name}-virtual", title=f"{title}, virtual clock")


ON_WALL = (*_slower(), *map(_beside, _slower(_VIRTUAL)))


def of_machines(count: int) -> dict[str, str]:
    """Return the names of the PS lines on so many machines, by the ratio of Fig. 3a."""
    return {title: ps(*with_ratio(count, ratio)) for title, ratio in RATIOS.items()}
