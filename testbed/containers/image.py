"""The image of this code: its name, and a check that an engine's image was built from this code.

An image has, as a label, a digest of the packages installed in it. It is computed over the installed
files, so that a checkout, a wheel and the image made of it have the same digest, and an image made of
other code has another, regardless of its tag.
"""

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

from testbed.code_digest import package_digest
from testbed.errors import HostError
from testbed.version import VERSION

DIGEST_LABEL = "io.testbed.package-digest"
"""The label with the digest of the code in an image."""


def default_image() -> str:
    """Return the name that ``make images`` gives to this version's image."""
    return f"testbed:{VERSION}"


def find_image(client: docker.DockerClient, name: str, *, of_this_code: bool = True) -> Image:
    """Return the image of this name.

    Args:
        of_this_code: True to refuse an image that was made of other code.

    Raises:
        HostError: there is no such image, or it was made of other code.
        docker.errors.DockerException: the engine does not answer.
    """
    try:
        image = client.images.get(name)
    except ImageNotFound:
        raise HostError(f"there is no image {name}: {_remedy(name)}") from None
    if of_this_code and image.labels.get(DIGEST_LABEL) != package_digest():
        raise HostError(f"the image {name} was built from other code: {_remedy(name)}")
    return image


def _remedy(name: str) -> str:
    argument = "" if name == default_image() else f" IMAGE={name}"
    return f"build it from this code (make images{argument})"
