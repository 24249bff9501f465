"""What the pages answer to requests that no page of theirs makes."""

import http.client
import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.pages.conftest import Site
from tests.results.conftest import writer_of_runs


def ask(
    site: Site, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Return the status, the text and the headers of an answer."""
    connection = http.client.HTTPConnection(urlsplit(site.base).netloc, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return found


def cookie(site: Site) -> str:
    return f"testbed-{urlsplit(site.base).port}={site.token}"


@pytest.mark.parametrize("path", ["/", "/report?run=x", "/events", "/plotly.js", "/plan?file=x"])
@pytest.mark.parametrize("token", [None, "wrong", "é"])
def test_nothing_is_answered_without_the_token(site: Site, path: str, token: str | None) -> None:
    given = "" if token is None else ("&" if "?" in path else "?") + urlencode({"token": token})
    status, text, _ = ask(site, path + given)
    assert status == 403
    assert "the token in it is needed" in text


def test_the_token_leaves_the_address_for_a_cookie_of_this_site(site: Site) -> None:
    status, _, headers = ask(site, f"/report?run=a%26b&token={site.token}")
    assert (status, headers["location"]) == (303, "/report?run=a%26b")
    assert cookie(site) in headers["set-cookie"]
    assert "HttpOnly" in headers["set-cookie"] and "SameSite=strict" in headers["set-cookie"]


@pytest.mark.parametrize("origin", [None, "null", "http://127.0.0.1:1", "https://example.org"])
@pytest.mark.parametrize("path", ["/start", "/stop"])
def test_other_pages_start_and_stop_nothing(site: Site, path: str, origin: str | None) -> None:
    headers = {"Cookie": cookie(site)} | ({} if origin is None else {"Origin": origin})
    status, text, _ = ask(site, path, "POST", "file=long.yaml&run=x", **headers)
    assert (status, text) == (403, "The form is not one of this server's pages.\n")
    assert not (site.folder / "runs").exists()


@pytest.mark.parametrize(
    "run", ["..", "../tiny.yaml", "/etc", ".", "", "away", "loop", "a\0b", "x" * 5000]
)
def test_runs_outside_the_folder_are_not_read(site: Site, run: str) -> None:
    runs = site.folder / "runs"
    runs.mkdir(exist_ok=True)
    try:
        (runs / "away").symlink_to("/etc")
        (runs / "loop").symlink_to("loop")
        status, text, _ = ask(site, f"/report?run={quote(run)}", Cookie=cookie(site))
        assert status == 404
        assert "there is no run" in text
    finally:
        (runs / "away").unlink()
        (runs / "loop").unlink()
        runs.rmdir()


def test_no_run_chosen(site: Site) -> None:
    status, text, _ = ask(site, "/report", Cookie=cookie(site))
    assert status == 404
    assert "no run is chosen: tick one in the list of runs" in text


@pytest.mark.parametrize("file", ["../x.yaml", "/etc/passwd", "sweep.yaml", "notes.yaml", ""])
def test_only_experiment_files_of_the_folder_are_started(site: Site, file: str) -> None:
    for path, method in ((f"/plan?{urlencode({'file': file})}", "GET"), ("/start", "POST")):
        body = urlencode({"file": file}) if method == "POST" else None
        origin = site.base.rstrip("/")
        status, text, _ = ask(site, path, method, body, Cookie=cookie(site), Origin=origin)
        assert status == 404
        assert "there is no experiment file" in text


def test_a_form_has_a_limit(site: Site) -> None:
    origin = site.base.rstrip("/")
    body = "file=" + "x" * 70_000
    status, text, _ = ask(site, "/start", "POST", body, Cookie=cookie(site), Origin=origin)
    assert status == 404
    assert "the form has more than 65,536 bytes" in text


def test_a_key_with_a_nul_is_refused(site: Site) -> None:
    origin = site.base.rstrip("/")
    asked = urlencode({"file": "tiny.yaml", "set": "seed=\0"})
    for path, method, body in ((f"/plan?{asked}", "GET", None), ("/start", "POST", asked)):
        status, text, _ = ask(site, path, method, body, Cookie=cookie(site), Origin=origin)
        assert status == 404
        assert "the keys to set have a NUL" in text


def test_files_are_offered_by_their_own_names(site: Site) -> None:
    _, text, _ = ask(site, "/", Cookie=cookie(site))
    assert '<option value="no-sweep.yaml">' in text  # `run` takes it
    assert '<option value=" two  spaces.yaml">' in text  # a browser would fold its spaces
    assert "sweep.yaml" not in text.replace("no-sweep.yaml", "")


def test_runs_that_no_address_names_are_left_out(site: Site, tmp_path: Path) -> None:
    runs = site.folder / "runs"
    writer_of_runs(runs)("asgd", "kept/1")
    writer_of_runs(runs)("asgd", "no-utf-8/1")
    (runs / "no-utf-8").rename(runs / os.fsdecode(b"no-utf-8-\xff"))
    writer_of_runs(tmp_path)("asgd", "elsewhere/1")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    try:
        status, text, _ = ask(site, "/", Cookie=cookie(site))
        assert status == 200
        assert re.findall('name="run" value="(.*?)"', text) == ["kept/1/asgd"]
    finally:
        shutil.rmtree(runs)


def test_names_are_text(site: Site) -> None:
    status, text, headers = ask(site, "/", Cookie=cookie(site))
    assert status == 200
    assert "&lt;b&gt;bold.yaml" in text and "<b>bold" not in text
    assert "script-src 'self'" in headers["content-security-policy"]
    file = quote("<b>bold.yaml")
    _, text, _ = ask(site, f"/plan?file={file}&set={quote('name=<i>')}", Cookie=cookie(site))
    assert "<i>" not in text and "<b>" not in text
    assert "It cannot be started" in text  # a folder has no such name
