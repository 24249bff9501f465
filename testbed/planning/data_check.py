"""Check, before anything is started, that a run can use its dataset and its traces."""

from testbed.errors import SpecError
from testbed.learning.data import datasets
from testbed.planning.images import share_out
from testbed.planning.mean_times import class_means
from testbed.planning.plan import Plan
from testbed.training.times import PURPOSES


def check_data(plan: Plan) -> None:
    """Read dataset and traces once, so that errors are reported before anything is started.

    Raises:
        DataError: the dataset is missing or corrupt, or has fewer images than asked for.
        SpecError: a worker's part is smaller than a mini-batch, or a trace cannot be used.
    """
    settings = plan.settings
    data = plan.spec.dataset
    datasets.check(data.choice, data.train_images, data.scaling)
    means = zip(*(class_means(plan, purpose) for purpose in PURPOSES), strict=True)
    for i, (device, seconds) in enumerate(zip(settings.kinds_of_devices, means, strict=True)):
        rates = device.uplink, device.downlink, device.up_trace, device.down_trace
        takes_time = any((*seconds, *rates, device.delay, device.down_delay))
        if settings.timing.clock == "virtual" and not takes_time:
            where = f"devices.classes.{i}" if settings.classes else "clock"
            raise SpecError(
                f"{where}: nothing takes any time (the trace holds only zeros), so the virtual clock "
                "would never advance: give computing or waiting a duration"
            )
    images = share_out(plan).images
    worker, fewest = int(images.argmin()), int(images.min())
    if fewest < settings.training.batch_size:
        raise SpecError(
            f"dataset {settings.dataset}: of {int(images.sum()):,} training images for "
            f"{len(images):,} workers, worker {worker} has {fewest}, fewer than a mini-batch of "
            f"{settings.training.batch_size}: use fewer workers (devices.workers), a smaller "
            "training.batch_size, or another partition"
        )
