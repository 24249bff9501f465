"""Data-parallel training on the handwritten digits: one process in each device, over gloo.

Nothing in this program knows of the testbed. `torchrun` sets RANK and WORLD_SIZE; rank 0 evaluates
the model after each epoch and prints the accuracy.
"""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS = int(os.environ.get("EPOCHS", "5"))
BATCH = 16
TRAINING_SAMPLES = 1437


def samples() -> tuple[Tensor, Tensor]:
    """Return the 1,797 images, enlarged to 28 × 28 pixels, and their labels in a fixed order."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32)[order].unsqueeze(1) / 16
    return nn.functional.interpolate(images, 28), torch.tensor(digits.target)[order]


def new_model() -> nn.Module:
    """Build a convolutional network of 211,690 weights: its gradient is 847 kB."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1568, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main() -> None:
    """Train on this rank's share of the samples and evaluate on rank 0."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = samples()
    mine = slice(rank, TRAINING_SAMPLES - TRAINING_SAMPLES % world, world)
    torch.manual_seed(1)
    model = DistributedDataParallel(new_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    for epoch in range(1, EPOCHS + 1):
        for x, y in zip(images[mine].split(BATCH), labels[mine].split(BATCH), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if rank == 0:
            with torch.no_grad():
                scores = model.module(images[TRAINING_SAMPLES:])
            loss = nn.functional.cross_entropy(scores, labels[TRAINING_SAMPLES:]).item()
            hits = (scores.argmax(1) == labels[TRAINING_SAMPLES:]).float().mean().item()
            print(f"round={epoch} accuracy={hits:.4f} loss={loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
