"""The image of this code: its name, and whether an engine has it as it should be.

An image carries, as a label, a digest of the packages that were installed into it. It is taken over
the files as they lie there, so that a checkout, a wheel and the image made of it have the same one,
and an image made of other code has another, whatever its tag.
"""

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

import testbed
from testbed.code_digest import package_digest
from testbed.errors import HostError

DIGEST_LABEL = "io.testbed.package-digest"
"""The label of an image with the digest of the code in it."""


def default_image() -> str:
    """The name under which ``make images`` makes this version's image."""
    return f"testbed:{testbed.__version__}"


def find_image(client: docker.DockerClient, name: str, *, of_this_code: bool = True) -> Image:
    """The image by this name.

    Args:
        of_this_code: refuse one that was made of other code.

    Raises:
        HostError: there is none, or it was made of other code.
        docker.errors.DockerException: the engine does not answer.
    """
    try:
        image = client.images.get(name)
    except ImageNotFound:
        raise HostError(f"there is no image {name}: {_remedy(name)}") from None
    if of_this_code and image.labels.get(DIGEST_LABEL) != package_digest():
        raise HostError(f"image {name} was built from other code than this: {_remedy(name)}")
    return image


def _remedy(name: str) -> str:
    if name == default_image():
        return "`make images` builds it"
    return f"`make images IMAGE={name}` builds one of this code by that name"
