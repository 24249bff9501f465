"""The choice of the base on which the image is built."""

import io
import tarfile
import uuid
from collections.abc import Iterator

import docker
import pytest

from images.base import BASE_IMAGE
from images.build import PUBLIC_BASE, choose_base, target_of
from testbed.errors import HostError


@pytest.fixture
def empty_image(docker_client: docker.DockerClient) -> Iterator[str]:
    """An image with nothing in it."""
    name = f"testbed-test-{uuid.uuid4().hex[:12]}:latest"
    with io.BytesIO() as archive:
        tarfile.open(fileobj=archive, mode="w").close()
        archive.seek(0)
        docker_client.api.import_image(src=archive, repository=name.removesuffix(":latest"))
    yield name
    docker_client.images.remove(name)


def test_the_base_that_is_asked_for_is_used(
    docker_client: docker.DockerClient, empty_image: str
) -> None:
    said: list[str] = []
    assert choose_base(docker_client, empty_image, said.append) == empty_image
    assert said == []  # it exists, so nothing is pulled


def test_an_unavailable_base_is_refused_with_the_remedy(
    docker_client: docker.DockerClient,
) -> None:
    name = f"testbed-test/{uuid.uuid4().hex}:1"
    said: list[str] = []
    with pytest.raises(HostError, match=rf"no base image {name} .*make base-image"):
        choose_base(docker_client, name, said.append)
    assert said == [f"pulling {name}"]


def test_a_base_that_the_engine_has_is_used_without_a_registry(
    docker_client: docker.DockerClient, testbed_image: str
) -> None:
    assert testbed_image  # its fixture builds a base if there is none
    said: list[str] = []
    base = choose_base(docker_client, None, said.append)
    assert base in (PUBLIC_BASE, BASE_IMAGE)
    assert said == []
    target = target_of(docker_client, base)
    assert target.python >= (3, 11)
    assert target.glibc >= (2, 28)


def test_a_base_without_python_is_refused(
    docker_client: docker.DockerClient, empty_image: str
) -> None:
    with pytest.raises(HostError, match=rf"{empty_image} must have Python 3\.11 or newer"):
        target_of(docker_client, empty_image)
