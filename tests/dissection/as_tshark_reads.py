"""What tshark finds in a capture with this package's dissector."""

import json
import subprocess
from pathlib import Path
from typing import Any

from testbed.dissection.wireshark import dissector


def as_tshark_reads(path: Path, folder: Path) -> list[dict[str, str]]:
    """Return the fields of each message that tshark finds in a capture."""
    script = folder / "testbed.lua"
    script.write_text(dissector())
    command = ["tshark", "-n", "-X", f"lua_script:{script}", "-r", str(path), "-Y", "testbed"]
    told = subprocess.run([*command, "-T", "json"], capture_output=True, text=True, check=True)
    assert "Lua" not in told.stderr and "_ws.lua.error" not in told.stdout, (
        told.stderr + told.stdout
    )
    found: list[dict[str, str]] = []

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.extend(value for name, value in pairs if name == "testbed")
        return dict(pairs)

    json.loads(told.stdout, object_pairs_hook=take)
    return found
