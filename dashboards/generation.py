"""Generates the dashboards' JSON, which is committed: the same code makes the same bytes."""

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import compare, devices, ingress, network

FOLDER = Path(__file__).parent / "json"
DASHBOARDS = (compare.DASHBOARD, devices.DASHBOARD, ingress.DASHBOARD, network.DASHBOARD)


def generated() -> dict[str, str]:
    """Return the text of every file, by its name."""
    options: dict[str, Any] = {"indent": 2, "sort_keys": True, "ensure_ascii": False}
    return {
        f"{one.name}.json": json.dumps(one.model(), cls=JSONEncoder, **options) + "\n"
        for one in DASHBOARDS
    }


def differences(folder: Path = FOLDER) -> list[str]:
    """Return the names of files that are missing, differ from the code's, or are made by no code."""
    wanted = generated()
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in wanted | there if wanted.get(name) != there.get(name))


def write(folder: Path = FOLDER) -> list[Path]:
    """Write the files that differ, remove those that no code makes; return the files touched."""
    wanted = generated()
    folder.mkdir(parents=True, exist_ok=True)
    touched = [folder / name for name in differences(folder)]
    for path in touched:
        if path.name in wanted:
            path.write_text(wanted[path.name], encoding="utf-8")
        else:
            path.unlink()
    return touched
