"""Corollary 1: the mean of ‖∇f‖² over K steps is at most 4·√((f(θ_1) − f*)·L·σ² / (B·K)), measured.

f(θ) = Σ (1 − cos θ_i) is not convex, has f* = 0 and L = 1, and gradients have normal noise, so that L
and σ² are known exactly. Workers push in turn, so that each gradient is T = N − 1 steps late. (9) asks
for a constant η/G: the step of an entry is then η, whatever its gap, which is ``asgd``'s without the
division by the staleness (``momentum-asgd`` with γ = 0). ``ga`` has η itself, and so smaller steps.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from reproduction.claims import Verdict, decided
from reproduction.measured import Found, Numbers, Points
from reproduction.paper import Measurement, Part, Row, Section
from reproduction.series import Scale
from reproduction.significance import Sample
from testbed.algorithms import algorithm_named
from testbed.algorithms.interface import Conditions
from testbed.random_streams import stream
from testbed.updates import DenseUpdate, Layout

_SIZE = 10
_START = 2.0
_NOISE = 100.0
"""σ², the variance of the gradient of one image, over all entries."""
_WORKERS = 4
_F1 = _SIZE * (1 - float(np.cos(_START)))
_BATCHES = (1, 4, 16)
_STEPS = (500, 2_000, 8_000)
RULES = {"momentum-asgd": "constant η/G", "ga": "GA, constant η"}
_RATE = 0.1
"""How much the exponent of BK may differ from −1/2."""


def bound(batch: int, steps: int) -> float:
    """Return the right side of (11)."""
    return 4 * float(np.sqrt(_F1 * _NOISE / (batch * steps)))


def mean_norm(rule: str, batch: int, steps: int, seed: int) -> float:
    """Return the mean of ‖∇f(θ_k)‖² over the steps of a run."""
    step = float(np.sqrt(_F1 / (batch * steps * _NOISE)))
    algorithm = algorithm_named(rule)
    options = algorithm.options_type.model_validate({"name": rule, "momentum": 0.0})
    # (3) sums the gradients of a mini-batch, and a worker pushes their mean.
    conditions = Conditions(batch * step, _WORKERS, batch, steps)
    start = np.full(_SIZE, _START, np.float32)
    half = algorithm.server(options, Layout(("θ",), (_SIZE,)), start, conditions)
    noise = stream(seed, "corollary")
    held: list[tuple[int, npt.NDArray[np.float32]]] = []
    for worker in range(_WORKERS):
        held.append((half.pull(worker) or 0, half.outgoing(worker).copy()))
    norms = np.empty(steps)
    for k in range(steps):
        norms[k] = float(np.square(np.sin(half.parameters, dtype=np.float64)).sum())
        worker = k % _WORKERS
        base, theta = held[worker]
        drawn = noise.normal(0, np.sqrt(_NOISE / _SIZE / batch), _SIZE)
        half.push(worker, DenseUpdate((np.sin(theta) + drawn).astype(np.float32)), base)
        held[worker] = half.pull(worker) or 0, half.outgoing(worker).copy()
    return float(norms.mean())


def _measure(scale: Scale) -> list[dict[str, object]]:
    tiny = scale.name == "tiny"
    return [
        {
            "rule": rule,
            "batch": batch,
            "steps": steps,
            "seed": seed,
            "norm": f"{mean_norm(rule, batch, steps, seed):.6g}",
        }
        for rule in RULES
        for batch in _BATCHES[: 2 if tiny else None]
        for steps in ((50, 200) if tiny else _STEPS)
        for seed in range(1, 2 if tiny else 6)
    ]


Settings = Mapping[tuple[int, int], Sample]
"""By B and K the means of ‖∇f‖² of the seeds."""


def _settings(rows: Sequence[Row], rule: str) -> Settings:
    found: dict[tuple[int, int], dict[int, float]] = {}
    for row in rows:
        if row["rule"] == rule:
            key = int(row["batch"]), int(row["steps"])
            found.setdefault(key, {})[int(row["seed"])] = float(row["norm"])
    return {key: Sample(values) for key, values in found.items()}


def _bounded(settings: Settings, title: str) -> Found:
    text = f"{title}: the mean of ‖∇f‖² is at most the bound (11), for each B and K"
    if not settings:
        return Found(Verdict(text))
    shares = {
        key: Sample({seed: one / bound(*key) for seed, one in sample.values.items()})
        for key, sample in settings.items()
    }
    told = f"at most {max(one.mean for one in shares.values()):.2f} of it"
    return Found(decided(text, [one.between(most=1.0, unit="") for one in shares.values()], told))


def _falls(settings: Settings, title: str) -> Found:
    text = f"{title}: it falls as (BK) to the power of −1/2, up or down to {_RATE:g}"
    if not settings:
        return Found(Verdict(text))
    at = np.log([batch * steps for batch, steps in settings])
    powers = {
        seed: float(np.polyfit(at, np.log([one.values[seed] for one in settings.values()]), 1)[0])
        for seed in next(iter(settings.values())).values
    }
    told = ", ".join(f"{power:.2f}" for power in powers.values())
    interval = Sample(powers).between(-0.5 - _RATE, -0.5 + _RATE, "")
    return Found(decided(text, [interval], told, -0.5))


def _by_product(values: Mapping[tuple[int, int], float]) -> list[tuple[float, float]]:
    """Return the means of the values of each BK, in thousands, in order."""
    found: dict[float, list[float]] = {}
    for (batch, steps), value in values.items():
        found.setdefault(batch * steps / 1000, []).append(value)
    return [(at, float(np.mean(found[at]))) for at in sorted(found)]


def _part(rows: Sequence[Row]) -> Part:
    of_rules = {title: _settings(rows, rule) for rule, title in RULES.items()}
    first = of_rules[RULES["ga"]]
    curves = {
        title: _by_product({key: one.mean for key, one in settings.items()})
        for title, settings in of_rules.items()
    }
    curves["bound (11)"] = _by_product({key: bound(*key) for key in first})
    cells = [
        (
            f"{b}",
            f"{k:,}",
            *(f"{one[b, k].mean:.3f}" for one in of_rules.values()),
            f"{bound(b, k):.3f}",
        )
        for b, k in first
    ]
    return Part(
        "corollary1",
        "Corollary 1: the rate 1/√(BK)",
        "The mean of the squared norms of the gradients over K steps is at most 4·√((f(θ₁) − "
        "f*)·L·σ²/(BK)), where η/G is constant, (9), and K is large enough, (10).",
        (),
        (
            Section(
                "The mean of ‖∇f‖² over K steps",
                (Numbers(("B", "K", *RULES.values(), "bound (11)"), cells),),
                f"f(θ) = Σ (1 − cos θ_i) of {_SIZE} entries, L = 1, σ² = {_NOISE:g}, {_WORKERS} "
                f"workers in turn, so that T = {_WORKERS - 1}; means of five seeds.",
            ),
        ),
        (Points("B·K / 1000", "mean of ‖∇f‖²", curves, logarithmic=True),) if rows else (),
        tuple(
            check(settings, title)
            for title, settings in of_rules.items()
            for check in (_bounded, _falls)
        ),
    )


COROLLARY1 = Measurement("corollary1", _measure, _part)
