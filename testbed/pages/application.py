"""The application that serves the pages: addresses, and what they answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from urllib.parse import parse_qs, urlencode

from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from testbed.errors import SpecError, TestbedError
from testbed.pages.contents import PAGES, RunsFolder, plan, refusal
from testbed.pages.experiments import Experiments
from testbed.pages.token import TokenNeeded
from testbed.results.report.report import REPORT, Content, framed, resource

PERIOD = 1.0
"""Seconds between two looks for what is new."""
SHARE = 0.2
"""The part of one processor that making a page anew may take."""
_LARGEST_FORM = 65_536
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'self'"
)
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def application(
    runs: RunsFolder, experiments: Experiments, *, token: str, cookie: str
) -> Starlette:
    """Return the application that serves the pages of a folder of runs.

    Args:
        token, cookie: as of ``TokenNeeded``.
    """
    pages = _Pages(runs, experiments)
    return Starlette(
        routes=[
            Route("/", pages.all_runs),
            Route("/events", pages.events_of_all_runs),
            Route("/report", pages.report),
            Route("/report/events", pages.events_of_report),
            Route("/plan", pages.plan),
            Route("/start", pages.start, methods=["POST"]),
            Route("/stop", pages.stop, methods=["POST"]),
            Route("/{name}.js", pages.script),
        ],
        middleware=[Middleware(TokenNeeded, token=token, cookie=cookie)],
        exception_handlers={TestbedError: _refused},
    )


class _Pages:
    """The answers. What reads files or waits for commands is done in threads."""

    def __init__(self, runs: RunsFolder, experiments: Experiments) -> None:
        self._runs, self._experiments = runs, experiments
        self._scripts = {
            "plotly": get_plotlyjs(),
            "report": resource(REPORT, "report.js"),
            "pages": resource(PAGES, "pages.js"),
        }

    async def all_runs(self, _: Request) -> Response:
        return _page(await run_in_threadpool(self._runs.all_runs), "events", "pages")

    async def events_of_all_runs(self, _: Request) -> Response:
        return _events(time.monotonic, self._runs.all_runs)

    async def report(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        content = await run_in_threadpool(self._runs.report, names)
        events = f"report/events?{urlencode({'run': names}, doseq=True)}"
        return _page(content, events, "plotly", "report", "pages")

    async def events_of_report(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        return _events(lambda: self._runs.state(names), lambda: self._runs.report(names))

    async def plan(self, request: Request) -> Response:
        asked = request.query_params
        file, overrides = asked.get("file", ""), asked.get("set", "")
        status, text = await run_in_threadpool(self._experiments.plan, file, overrides)
        return _page(plan(file, overrides, text, status), "")

    async def start(self, request: Request) -> Response:
        form = await _form(request)
        file, overrides = form.get("file", ""), form.get("set", "")
        await run_in_threadpool(self._experiments.start, file, overrides)
        return RedirectResponse("./", status_code=303)

    async def stop(self, request: Request) -> Response:
        name = (await _form(request)).get("run", "")
        await run_in_threadpool(self._runs.stop, name)
        return RedirectResponse(f"report?{urlencode({'run': name})}", status_code=303)

    async def script(self, request: Request) -> Response:
        found = self._scripts.get(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        return Response(found, media_type="text/javascript", headers=_HEADERS)


def _page(content: Content, events: str, *scripts: str, status: int = 200) -> Response:
    """Return the answer that is a page.

    Args:
        events: the address of the events that tell of newer contents; none if empty.
        scripts: names of the page's scripts.
    """
    elements = "\n".join(f'<script src="{name}.js"></script>' for name in scripts)
    text = framed(content, _POLICY, elements, style=resource(PAGES, "pages.css"), events=events)
    body = text.encode("utf-8", "backslashreplace")  # of names with bytes that are no UTF-8
    headers = _HEADERS | {"Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'"}
    return HTMLResponse(body, status, headers=headers)


async def _refused(_: Request, error: Exception) -> Response:
    return _page(refusal(str(error)), "", status=404)


def _events(state: Callable[[], object], content: Callable[[], Content]) -> Response:
    """Return the answer that goes on: an event for each newer content.

    Args:
        state: a content is made anew when this has changed.
    """

    async def changes() -> AsyncIterator[str]:
        seen: object = None
        sent: Content | None = None
        while True:
            began = time.monotonic()
            try:
                now = await run_in_threadpool(state)
                if now != seen:
                    seen, made = now, await run_in_threadpool(content)
                    if made != sent:
                        sent = made
                        yield _event("message", asdict(made))
            except TestbedError as error:
                yield _event("unreadable", str(error))
            await asyncio.sleep(max(PERIOD, (time.monotonic() - began) / SHARE))

    return StreamingResponse(changes(), media_type="text/event-stream", headers=_HEADERS)


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        SpecError: it is no form, or too long.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_FORM:
            raise SpecError(f"the form has more than {_LARGEST_FORM:,} bytes")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}
