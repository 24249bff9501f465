"""The runs of DBW's figures, and their lines."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from reproduction.papers.dbw import knee
from reproduction.series import Key, Series, Study

REPOSITORY = Path(__file__).parents[3]
_EXPERIMENTS = REPOSITORY / "experiments" / "dbw"
DYNAMIC = {"dbw": "DBW", "b-dbw": "B-DBW"}


def _study(file: str, *keys: Key, exclude: tuple[Mapping[str, object], ...] = ()) -> Study:
    return Study(_EXPERIMENTS / f"{file}.yaml", keys, exclude)


ALPHAS = (0, 0.2, 1)
"""α of Fig. 6."""
ALPHA_OF_FIG4, ALPHA_OF_INGRESS = 0.7, 1
_ALPHA = Key("compute.alpha", (1, 0.2, 0, 0.7), "α")
_K = Key("algorithms.wait_for", (8, 12, 16, 10, 6, 14, 4), "k")
STATIC_AT = {0: (8, 12, 16), 0.2: (8, 10, 12, 14, 16), 0.7: (8, 10, 16), 1: (4, 6, 8, 10, 12, 16)}
"""By α the static k that are run."""
_NOT_RUN = tuple(
    {"compute.alpha": alpha, "algorithms.wait_for": [k for k in _K.values if k not in run]}
    for alpha, run in STATIC_AT.items()
)
DYNAMIC_STUDY = _study("dynamic", _ALPHA)
STATIC_STUDY = _study("static", _ALPHA, _K, exclude=_NOT_RUN)


def at(alpha: float) -> tuple[Series, ...]:
    """Return DBW, B-DBW and the static settings at an α, named ``dbw-1``, ``static-1-8`` and so on."""
    lines = (*DYNAMIC_STUDY.lines(DYNAMIC), *STATIC_STUDY.lines({"static": "static"}))
    return tuple(one for one in lines if one.values["compute.alpha"] == alpha)


def static(alpha: float) -> dict[int, str]:
    """Return the names of the static lines at an α, by k."""
    return {k: f"static-{alpha:g}-{k}" for k in STATIC_AT[alpha]}


FIG1 = _study("fig1").lines({"dbw": "DBW"})
FIG3 = _study("fig3").lines({"dbw": "DBW, n = 5"})
FIG4 = at(ALPHA_OF_FIG4)
FIG6 = tuple(one for alpha in (1, 0.2, 0) for one in at(alpha))
_CIFAR_K = Key("algorithms.wait_for", (8, 16), "k")
FIG5 = (
    *_study("cifar").lines(DYNAMIC),
    *_study("static-cifar", _CIFAR_K).lines({"static": "static"}),
)
FIG2 = FIG5[:1]
_BATCH = Key("training.batch_size", (500, 128, 16), "B")
_OF_KNEE = Key("algorithms.wait_for", knee.WAITED_FOR, "k")
_NO_KNEE = tuple(
    {_BATCH.name: batch, _OF_KNEE.name: k}
    for batch in knee.BATCHES
    for k in knee.WAITED_FOR
    if not knee.known(batch, k)
)
FIG8 = (
    *_study("batches", _BATCH).lines(DYNAMIC),
    *_study("static-batches", _BATCH, _OF_KNEE, exclude=_NO_KNEE).lines({"static": "static"}),
)
"""Those of a static k only if `make dbw-knee` has found its learning rate."""
SLOW_FROM = ("160s", "40s")
"""The moments of Fig. 9's slow-down: the paper's, and one before the loss is reached here."""
_OF_SLOWDOWN = {"dbw": "DBW", "static-16": "static, k = 16", "static-8": "static, k = 8"}
FIG9 = tuple(
    replace(one, title=one.title.replace("from = ", "from ").removesuffix("s") + " s")
    for one in _study("slowdown", Key("compute.changes.0.at", SLOW_FROM, "slow from")).lines(
        _OF_SLOWDOWN
    )
)
VARIANT_ALPHAS = (1, 0.2)
VARIANTS = _study("variants", Key("compute.alpha", VARIANT_ALPHAS, "α")).lines(
    {"dbw": "DBW", "naive": "naive estimator", "interrupt": "Push & Interrupt"}
)
ADASYNC_ALPHAS = (0.1, 1, 0.2, 0.5)
FIG10 = _study("adasync", Key("compute.alpha", ADASYNC_ALPHAS, "α")).lines(
    {"dbw": "DBW", "adasync": "AdaSync"}
)
WAITED_FOR_OF_INGRESS = (None, 8, 16)
"""The k of the page on ingress; None: DBW's own."""
INGRESS = (
    *(
        one
        for one in at(ALPHA_OF_INGRESS)
        if one.name in ("dbw-1", *(f"static-1-{k}" for k in WAITED_FOR_OF_INGRESS if k))
    ),
    *_study("ingress-pull").lines({"dbw-pull": "DBW by Pull"}),
    *_study("ingress").lines({"asgd": "ASGD", "adacomp-0.01": "AdaComp, c = 0.01"}),
)
_RATE = Key("training.learning_rate", knee.RATES, "η")
RATES = (0.08, 0.04)
"""The paper's learning rate, and half of it."""
_OF_RATES, _K_OF_RATES = Key(_RATE.name, RATES, "η"), Key(_K.name, (8, 16), "k")
RATE = (
    *_study("dynamic", _OF_RATES).lines({"dbw": "DBW"}),
    *_study("static", _OF_RATES, _K_OF_RATES).lines({"static": "static"}),
)
_KNEE_STUDY = _study(
    "knee",
    Key("training.batch_size", knee.BATCHES, "B"),
    Key("algorithms.wait_for", knee.WAITED_FOR, "k"),
    _RATE,
)
KNEE = _KNEE_STUDY.lines({"static": "static"})
KNEES = {
    (batch, k): {
        float(value): name
        for value, name in _KNEE_STUDY.across("static", _RATE.name, B=batch, k=k).items()
    }
    for batch in knee.BATCHES
    for k in knee.WAITED_FOR
}


def of_slowdown(moment: str) -> dict[str, str]:
    """Return by name the titles of the lines of Fig. 9 with a slow-down at a moment."""
    return {f"{label}-{moment}": title for label, title in _OF_SLOWDOWN.items()}


def of_batch(batch: int) -> tuple[Series, ...]:
    """Return the lines of Fig. 8 with a mini-batch of so many images."""
    return tuple(one for one in FIG8 if one.values["training.batch_size"] == batch)


def static_of_batch(batch: int) -> dict[int, str]:
    """Return the names of the static lines with a mini-batch, by k."""
    return {k: f"static-{batch}-{k}" for k in knee.WAITED_FOR if knee.known(batch, k)}
