"""The check of a request's token, which is in the address that a server prints.

Other users of the host can connect to it as well, and a page could start programs as the user who
serves it. From the address the token goes into a cookie, which other sites' pages cannot use: a request
that does something has to come from a page of this server itself.
"""

import secrets

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_REFUSED = "Open the address that `testbed serve` has printed: the token in it is needed.\n"


class TokenNeeded:
    """Passes on the requests that have the token."""

    def __init__(self, app: ASGIApp, *, token: str, cookie: str) -> None:
        """Guard an application.

        Args:
            token: it is in the query of a request, or in its cookie.
            cookie: the name of that; cookies are a host's, whatever the port.
        """
        self._app = app
        self._token, self._cookie = token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        answer = self._answer(Request(scope)) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is not passed on; None: it is."""
        given = request.query_params.get("token")
        if given is not None and self._fits(given):
            if request.method != "GET":
                return None
            without = URL(str(request.url)).remove_query_params("token")
            answer = RedirectResponse(f"{without.path}?{without.query}".rstrip("?"), 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        if not self._fits(request.cookies.get(self._cookie, "")):
            return PlainTextResponse(_REFUSED, 403)
        own = f"{request.url.scheme}://{request.headers.get('host', '')}"
        if request.method not in ("GET", "HEAD") and request.headers.get("origin") != own:
            return PlainTextResponse("The form is not one of this server's pages.\n", 403)
        return None

    def _fits(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())
