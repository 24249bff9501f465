"""Build the image through the Docker SDK, by the engine's own (classic) builder.

The context holds the Dockerfile and the wheels. Every build sends all of it and takes unchanged layers
from the engine's cache: with the same dependencies only labels and the testbed's own small layer are
made anew.
"""

import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, ImageNotFound

import testbed
from images.archive import EPOCH, add_file
from images.base import BASE_IMAGE
from images.engine import answers
from images.wheels import Target, prepare
from testbed.code_digest import package_digest
from testbed.errors import HostError

PUBLIC_BASE = "python:3.11-slim"
"""The base image unless another is named, where a registry can be reached."""
WHEELS = Path("build/images")
"""The folder of the wheels, below the checkout."""
_DOCKERFILE = "images/Dockerfile"
_FACTS = (
    "import ensurepip, platform, sys, venv; "
    "print(*sys.version_info[:2], platform.machine(), *platform.libc_ver())"
)


def choose_base(client: docker.DockerClient, wanted: str | None, say: Callable[[str], None]) -> str:
    """Return the image to build on: one that the engine has, or else one that it can pull.

    Args:
        wanted: the only image to use; None: ``python:3.11-slim``, or that of ``make base-image``.
        say: called with a line of text before a step that takes time.

    Raises:
        HostError: the image is neither there nor can it be pulled.
    """
    for name in (wanted,) if wanted else (PUBLIC_BASE, BASE_IMAGE):
        if _has(client, name):
            return name
    name = wanted or PUBLIC_BASE
    say(f"pulling {name}")
    try:
        client.images.pull(*_repository_and_tag(name))
    except DockerException as error:
        why = " ".join(str(getattr(error, "explanation", None) or error).split())
        raise HostError(
            f"the engine has no base image {name} and cannot pull it ({why}): make one of Debian's "
            "packages (make base-image), or name another by BASE"
        ) from error
    return name


def target_of(client: docker.DockerClient, base: str) -> Target:
    """Return the target whose wheels a base image can run.

    Raises:
        HostError: the image has no Python on glibc with venv, or one that is too old.
    """
    needs = f"the base image {base} must have Python 3.11 or newer with venv and glibc"
    container = client.containers.create(
        base, ["-c", _FACTS], entrypoint="python3", network_mode="none"
    )
    # Removed here, because the engine does not remove a container that it could not start.
    try:
        container.start()
        failed = container.wait()["StatusCode"]
        said = " ".join(container.logs().decode(errors="replace").split())
    except APIError as error:
        raise HostError(f"{needs}: {' '.join(str(error.explanation).split())}") from error
    finally:
        container.remove(force=True)
    if failed:
        raise HostError(f"{needs}: {said}")
    match said.split():
        case [major, minor, machine, "glibc", glibc] if (int(major), int(minor)) >= (3, 11):
            first, _, second = glibc.partition(".")
            return Target((int(major), int(minor)), machine, (int(first), int(second)))
    raise HostError(f"{needs}; it has {said}")


def build(
    client: docker.DockerClient,
    project: Path,
    base: str,
    name: str,
    say: Callable[[str], None],
    *,
    cached: bool = True,
) -> str:
    """Build the image; return its id.

    Args:
        project: the checkout, whose code this process runs.
        base: an image that the engine has.
        name: repository and tag of the new image.
        say: called with a line of text before a step that takes time.
        cached: True if layers of earlier builds may be used.

    Raises:
        HostError: a wheel is not available, the code changes meanwhile, or a step fails.
    """
    say(f"making wheels for {base}")
    digest = package_digest()
    wheels = prepare(project, project / WHEELS, target_of(client, base))
    if package_digest() != digest:
        raise HostError("the code changed while its wheel was made: run `make images` again")
    with tempfile.TemporaryFile() as context:
        with tarfile.open(fileobj=context, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in (project / _DOCKERFILE, *wheels):
                add_file(archive, path, path.relative_to(project).as_posix())
        context.seek(0)
        say(f"building {name}")
        lines = client.api.build(
            fileobj=context,
            custom_context=True,
            dockerfile=_DOCKERFILE,
            tag=name,
            network_mode="none",
            nocache=not cached,
            rm=True,
            forcerm=True,
            buildargs={
                "BASE": base,
                "VERSION": testbed.__version__,
                "PACKAGE_DIGEST": digest,
                "SOURCE_DATE_EPOCH": str(EPOCH),
            },
        )
        said = ""
        for answer in answers(lines):
            line = " ".join(str(answer.get("stream", "")).split())
            # Keep what the failing command printed last, not what the builder says of containers.
            said = said if not line or line.startswith(("--->", "Removing")) else line
            if "error" in answer:
                error = " ".join(str(answer["error"]).split())
                raise HostError(f"{name} could not be built: {error} (its last output: {said})")
    return str(client.images.get(name).id)


def _has(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _repository_and_tag(name: str) -> tuple[str, str]:
    repository, _, tag = name.rpartition(":")
    return (repository, tag) if repository and "/" not in tag else (name, "latest")
