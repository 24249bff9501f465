"""The image: its code, its contents, and that it works read-only and without a network."""

import docker

import testbed
from testbed.code_digest import package_digest
from testbed.containers.image import DIGEST_LABEL

SMALL_LAYER = 12e6
"""Bytes; a layer that is built again when only the code changes must stay below."""


def run(client: docker.DockerClient, image: str, *command: str) -> str:
    """Return the output of a command in a container like those of a run."""
    said = client.containers.run(
        image,
        list(command),
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        tmpfs={"/tmp": "size=64m"},
        remove=True,
    )
    return said.decode().strip()


def test_the_image_holds_this_code(docker_client: docker.DockerClient, testbed_image: str) -> None:
    script = "import testbed.code_digest as d; print(d.package_digest())"
    assert run(docker_client, testbed_image, "python", "-c", script) == package_digest()


def test_the_labels_name_the_digest_and_the_version(
    docker_client: docker.DockerClient, testbed_image: str
) -> None:
    labels = docker_client.images.get(testbed_image).labels
    assert labels[DIGEST_LABEL] == package_digest()
    assert labels["org.opencontainers.image.version"] == testbed.__version__
    assert not [name for name in labels if "created" in name]  # it would differ every time


def test_the_user_of_the_image_cannot_change_it(
    docker_client: docker.DockerClient, testbed_image: str
) -> None:
    assert docker_client.images.get(testbed_image).attrs["Config"]["User"] == "10001:10001"
    look = "find / -xdev -writable ! -path '/proc/*' ! -path '/dev*' ! -type l 2>/dev/null; true"
    said = docker_client.containers.run(
        testbed_image, ["sh", "-c", look], network_mode="none", remove=True
    )
    places = {"/tmp", "/var/tmp", "/run/lock"}
    assert set(said.decode().split()) - places == set()


def test_nothing_can_be_installed_into_the_image(
    docker_client: docker.DockerClient, testbed_image: str
) -> None:
    found = run(docker_client, testbed_image, "sh", "-c", "command -v pip; ls /opt/testbed/bin")
    assert not [name for name in found.split() if "pip" in name]


def test_the_image_trains(docker_client: docker.DockerClient, testbed_image: str) -> None:
    experiment = (
        "{name: inside, dataset: digits, model: mlp, training: {updates: 20}, algorithms: [asgd], "
        "devices: {workers: 2}, compute: {distribution: constant, mean: 10ms}}"
    )
    script = f"echo '{experiment}' > /tmp/e.yaml && testbed simulate /tmp/e.yaml --out /tmp/runs"
    assert "asgd" in run(docker_client, testbed_image, "sh", "-c", script)


def test_a_change_of_the_code_rebuilds_one_small_layer(
    docker_client: docker.DockerClient, testbed_image: str
) -> None:
    layers = docker_client.images.get(testbed_image).history()
    top = layers[0]
    assert "COPY" in top["CreatedBy"]
    assert 0 < top["Size"] < SMALL_LAYER
    assert max(layer["Size"] for layer in layers) > 100 * top["Size"]
