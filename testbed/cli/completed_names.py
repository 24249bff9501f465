"""The names of runs that a shell completes after a Tab: what is there in the folder of the runs."""

import os
from pathlib import Path

import typer


def run_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the experiments, executions or runs, one level below what is written already.

    Only names of folders are looked at: a shell waits for this after each Tab.
    """
    above, slash, begin = incomplete.rpartition("/")
    root = Path(context.params.get("runs") or "runs")
    try:
        with os.scandir(root / above) as entries:
            found = sorted(
                entry.name
                for entry in entries
                if entry.name.startswith(begin) and entry.name != "figures" and entry.is_dir()
            )
    except OSError:  # there are no runs here
        return []
    return [f"{above}{slash}{name}" for name in found]
