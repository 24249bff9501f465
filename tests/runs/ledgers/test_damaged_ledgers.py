"""Ledgers whose file was damaged are reported, or still make an account."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.runs.ledgers.ledgers import ConnectionLedger, Ledgers
from testbed.runs.ledgers.traffic_account import examine
from traffic import TrafficError

LEDGERS = Ledgers(
    "10.77.0.1",
    {"10.77.0.1": "server-0", "10.77.0.5": "worker-0"},
    captured=True,
    began=1.75e9,
    began_monotonic=5.5,
    connections=[ConnectionLedger("worker-0", "10.77.0.5", 4000, 900, 0, 800, 700, 0, None)],
    capture={
        "records": 0,
        "dropped": 0,
        "left_out": 0,
        "bytes": 0,
        "files": [],
        "error": None,
        "complete": True,
    },
    counter={"frames": 0, "bytes": 0, "time": 5.0, "dropped": 0},
    of="server-0",
)
VALUES: tuple[Any, ...] = (None, "x", -1, 2.5, [], {}, True, 1e400)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each holder of a value in a tree, with the value's key or index."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from places(tree[key])


def damaged(text: str) -> Iterator[str]:
    """Yield a file with each of its values replaced by each of ``VALUES``, and left out."""
    tree = json.loads(text)
    for holder, key in places(tree):
        whole = holder[key]
        for value in VALUES:
            holder[key] = value
            yield json.dumps(tree)
        holder[key] = whole
        if isinstance(holder, dict):
            del holder[key]
            yield json.dumps(tree)
            holder[key] = whole


def test_a_damaged_file_of_ledgers_is_an_error_in_a_sentence_or_none(tmp_path: Path) -> None:
    LEDGERS.save(tmp_path)
    (path,) = tmp_path.iterdir()
    refused = 0
    for text in damaged(path.read_text("utf-8")):
        path.write_text(text, "utf-8")
        try:
            examine(Ledgers.load_all(tmp_path), tmp_path)
        except TrafficError as error:
            refused += 1
            assert str(path) in str(error)
    assert refused > 50


def test_ledgers_under_the_name_of_another_server_are_refused(tmp_path: Path) -> None:
    LEDGERS.save(tmp_path)
    (path,) = tmp_path.iterdir()
    path.rename(path.with_name("ledgers-server-1.json"))
    with pytest.raises(TrafficError, match="it has the ledgers of server-0"):
        Ledgers.load_all(tmp_path)
