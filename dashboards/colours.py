"""One colour for one thing, on every dashboard.

Only names of Grafana's palette are used: Grafana draws each in a shade that is legible on its light and
on its dark background. Series without a colour of their own (algorithms, runs) get one by their name,
so that a series has the same colour in every panel.
"""

from collections.abc import Mapping

from grafana_foundation_sdk.models import dashboard as model

LAYERS: Mapping[str, str] = {"payload": "green", "message": "blue", "wire": "orange"}
STATES: Mapping[str, str] = {
    "starting": "blue",
    "training": "green",
    "waiting": "yellow",
    "frozen": "purple",
    "dead": "red",
    "done": "text",
}
WORKERS: Mapping[str, str] = {
    "alive": "green",
    "frozen": STATES["frozen"],
    "dead": STATES["dead"],
    "cut off": "orange",
    "suspected": "yellow",
}
ROLES: Mapping[str, str] = {
    "server": "orange",
    "workers": "green",
    "evaluator": "purple",
    "orchestrator": "blue",
}
PHASES: Mapping[str, str] = {
    "loading": "blue",
    "devices": "purple",
    "training": "green",
    "finishing": "yellow",
    "completed": "text",
    "diverged": "semi-dark-red",
    "disturbed": "dark-orange",
    "failed": "red",
    "interrupted": "orange",
}


def fixed(colour: str) -> list[model.DynamicConfigValue]:
    """Return the properties that give a series a colour of the palette."""
    return [model.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})]


def starting_with(word: str) -> str:
    """Return the regular expression, in Grafana's form, for series whose name starts with a word."""
    return f"/^{word}( |$)/"
