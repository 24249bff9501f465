"""The exporter over HTTP: where it serves, which ports it refuses, and how long it lingers."""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from testbed.errors import SpecError
from testbed.metrics.exporter import Exporter
from testbed.metrics.live import LiveRun
from tests.metrics.running import planned, samples, scrape


def test_the_exporter_serves_all_runs_on_loopback_until_it_is_closed() -> None:
    exporter = Exporter(0)
    assert exporter.url == f"http://127.0.0.1:{exporter.port}/metrics" and exporter.port
    assert samples(scrape(exporter.url)) == {}
    for name in ("one", "two"):
        exporter.add(LiveRun(planned(3, algorithms=[name_of(name)]), "time-1"))
    found = samples(scrape(exporter.url))
    assert {dict(k)["algorithm"] for k in found["testbed_run_info"]} == {"one", "two"}
    exporter.close()
    with pytest.raises(urllib.error.URLError):
        scrape(exporter.url)
    Exporter(exporter.port).close()  # the port is free again


def test_head_is_answered_as_get_without_the_body() -> None:
    exporter = Exporter(0)
    exporter.add(LiveRun(planned(3), "time-1"))
    answers = {}
    for method in ("GET", "HEAD"):
        with urllib.request.urlopen(urllib.request.Request(exporter.url, method=method)) as answer:
            answers[method] = (answer.status, answer.headers["Content-Type"], answer.read())
            length = int(answer.headers["Content-Length"])
    exporter.close()
    assert answers["HEAD"] == (*answers["GET"][:2], b"") and answers["GET"][0] == 200
    assert length == pytest.approx(len(answers["GET"][2]), abs=200)  # times have other digits


def name_of(label: str) -> dict[str, str]:
    return {"name": "asgd", "label": label}


def test_a_port_that_is_in_use_is_refused_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SpecError, match=f"--metrics-port {port}: the port is in use"):
            Exporter(port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_number_that_cannot_exist_is_refused(port: int) -> None:
    with pytest.raises(SpecError, match="there is no such port"):
        Exporter(port)


def test_the_exporter_lingers_until_its_time_is_over_or_a_signal_comes() -> None:
    exporter = Exporter(0)
    began = time.monotonic()
    exporter.linger(0.3)
    assert 0.3 <= time.monotonic() - began < 5
    for number in (signal.SIGINT, signal.SIGTERM):
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        exporter.linger(60)
    exporter.linger(0)
    assert time.monotonic() - began < 20
    exporter.close()


def test_promtool_finds_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool here: Debian has it in the package prometheus")
    exporter = Exporter(0, workers=True)
    exporter.add(LiveRun(planned(3), "time-1"))
    text = scrape(exporter.url)
    exporter.close()
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
