"""What the pages answer to requests that no page of theirs makes."""

import http.client
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.pages.conftest import Site


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


def test_names_are_text(site: Site) -> None:
    status, text, headers = ask(site, "/", Cookie=cookie(site))
    assert status == 200
    assert "&lt;b&gt;bold.yaml" in text and "<b>bold" not in text
    assert "script-src 'self'" in headers["content-security-policy"]
    file = quote("<b>bold.yaml")
    _, text, _ = ask(site, f"/plan?file={file}&set={quote('name=<i>')}", Cookie=cookie(site))
    assert "<i>" not in text and "<b>" not in text
    assert "It cannot be started" in text  # a folder has no such name
