"""The lines of ``testbed plan`` in which algorithms explain what they choose for a run."""

from collections.abc import Iterator, Sequence

from testbed.algorithms import algorithm_named
from testbed.experiment.model_conflicts import layout_of
from testbed.planning.plan import Plan
from testbed.training.conditions import conditions


def describe(plans: Sequence[Plan]) -> list[str]:
    """Return a line for each run, or each class of its devices, whose algorithm explains itself."""
    return [line for plan in plans for line in _lines(plan)]


def _lines(plan: Plan) -> Iterator[str]:
    (options,) = plan.spec.algorithms
    explain, settings = algorithm_named(options.name).explain, plan.settings
    first = {one: settings.class_of.index(one) for one in sorted(set(settings.class_of))}
    texts: dict[str, list[str]] = {}
    for one, device in first.items() or [(-1, 0)]:
        text = explain(options, layout_of(plan.spec), conditions(settings, device))
        if text is not None:
            texts.setdefault(text, []).append(settings.classes[one].name if first else "")
    for text, names in texts.items():
        of = f", {' and '.join(names)}" if len(texts) > 1 else ""
        yield f"{plan.label}{of}: {text}"
