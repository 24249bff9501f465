"""Serve the pages at an address, or beside a run."""

import contextlib
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.errors import RunError, SpecError
from testbed.nodes.linux import die_with_parent
from testbed.pages.experiments import Experiments


def serve(
    runs: Path, experiments: Path, host: str, port: int, announce: Callable[[str], None]
) -> None:
    """Serve the pages until a signal ends it.

    Args:
        runs, experiments: the folders of runs, and of the files that can be started.
        host: the address to listen at.
        port: 0 for any free one.
        announce: is given the address for a browser, once it answers.

    Raises:
        SpecError: it cannot listen there.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # The events of an open page do not end by themselves, and a plan may take a minute.
            offered.end_plans()
            for connection in self.server_state.connections:
                connection.transport.abort()
            await super().shutdown(sockets)

    from testbed.pages.application import application
    from testbed.pages.contents import RunsFolder

    with _listening(host, port) as listener:
        port = listener.getsockname()[1]
        token = secrets.token_urlsafe(16)
        offered = Experiments(experiments, runs)
        folder = RunsFolder(runs, offered)
        app = application(folder, offered, token=token, cookie=f"testbed-{port}")
        config = uvicorn.Config(app, log_level="error", lifespan="off")
        shown = f"[{host}]" if ":" in host else host
        announce(f"http://{shown}:{port}/?token={token}")
        Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise SpecError(
            f"the pages cannot be served at {host}, port {port}: {error.strerror}; `--port 0` takes "
            "any free one"
        ) from None


@contextlib.contextmanager
def beside(runs: Path) -> Iterator[str]:
    """Serve the pages of a folder of runs from another process; yield their address.

    Raises:
        RunError: they cannot be served.
    """
    command = [sys.executable, "-m", "testbed", "serve", "--runs", str(runs), "--port", "0"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - one call of the kernel
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        address = line.partition("http://")[2].split()
        if not address:
            raise RunError(f"the pages are not served: `{' '.join(command[2:])}` says why")
        yield f"http://{address[0]}"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
