"""The metrics of a run of programs, as Prometheus would read them while it goes on."""

import re
import urllib.request
from typing import Any

import pytest

from tests.end_to_end.conftest import CommandLine, assert_one_sentence

pytestmark = [pytest.mark.real, pytest.mark.exercises("namespaces")]

TALKING: dict[str, Any] = {
    "name": "talking",
    "programs": {
        "web": {"on": "server", "run": "python3 -m http.server 8000", "ready": {"tcp": 8000}},
        "ask": {
            "on": "workers",
            "after": "web",
            "run": "sh -c 'while :; do sleep 0.2; echo accuracy=0.75; "
            'python3 -c "import urllib.request as u; u.urlopen(\\"http://server:8000\\").read()"'
            "; done'",
        },
    },
    "measure": {"from": "ask", "pattern": r"accuracy=(?P<accuracy>\S+)"},
    "devices": {"workers": 2},
}


def test_what_is_known_of_programs_is_exported(command: CommandLine) -> None:
    run = command.start_run(TALKING, "--metrics-port", "0")
    port = run.until(lambda: re.search(r"127\.0\.0\.1:(\d+)/metrics", run.said), "the address")[1]

    def scraped() -> str:
        text: bytes = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read()
        return text.decode()

    labels = r'algorithm="talking"[^}]*'
    wire = re.compile(rf'testbed_ingress_bytes_total\{{{labels}layer="wire"[^}}]*\}} [1-9]')
    run.until(lambda: wire.search(scraped()), "bytes")
    text = run.until(lambda: "testbed_accuracy" in (found := scraped()) and found, "an accuracy")
    assert re.search(rf'testbed_programs_running\{{{labels}program="ask"[^}}]*\}} 2.0', text), text
    assert 'layer="payload"' not in text, "what is not known is not exported"
    run.interrupt()
    run.wait()
    refused = command.do("replay", "latest", "--runs", command.out)
    assert "is of programs" in assert_one_sentence(refused, 2)
