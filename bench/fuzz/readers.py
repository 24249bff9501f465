"""``make fuzz-readers``: give mutated files to a reader, which may read them or refuse them.

``python -m bench.fuzz captures --inputs 1000000 --seed 1``. A target is a module of
``bench.fuzz.targets`` with

- ``corpus()``: files from which the mutants are made;
- ``TOKENS``: pieces that mean something in them, which are put into mutants;
- ``check(data)``: reads a mutant. It returns True if it was read and False if it was refused by the
  documented error. Every other exception is a finding, an assertion of the target's own included.

A finding is also an input that takes more than 10 s of processor time or 1 GiB of memory. Input i of
a seed is always the same: ``--first 4711 --inputs 1`` tries it alone. Findings are printed, and kept as
files with ``--keep``; the status is 1 if there are any.
"""

import argparse
import importlib
import random
import resource
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn, Protocol, cast

LONGEST = 10.0
"""Seconds of processor time that an input may take."""
MOST_MEMORY = 2**30
"""Bytes that the process may grow by."""
_NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
)
_MUTATIONS = (1, 1, 1, 2, 2, 3, 6)
_PROGRESS = 60.0
"""Seconds from one line of progress to the next."""


class Target(Protocol):
    """The interface of a module of ``bench.fuzz.targets``."""

    TOKENS: Sequence[bytes]

    def corpus(self) -> Sequence[bytes]:
        """Return whole files."""
        ...

    def check(self, data: bytes) -> bool:
        """Read a file; return False if it is refused."""
        ...


def mutants(
    corpus: Sequence[bytes], tokens: Sequence[bytes], seed: int, numbers: range
) -> Iterator[tuple[int, bytes]]:
    """Yield the inputs of a seed that have these numbers."""
    for number in numbers:
        draw = random.Random(f"{seed}/{number}")
        data = bytearray(draw.choice(corpus))
        for _ in range(draw.choice(_MUTATIONS)):
            _mutate(data, corpus, tokens, draw)
        yield number, bytes(data)


def _mutate(
    data: bytearray, corpus: Sequence[bytes], tokens: Sequence[bytes], draw: random.Random
) -> None:
    """Change something in a file: a byte, a number, a piece, a token, its end."""
    place = draw.randrange(len(data) + 1)
    length = draw.choice((1, 2, 4, 8, 16, 64))
    match draw.randrange(8):
        case 0:
            data[place : place + 1] = bytes([draw.randrange(256)])
        case 1:
            for at in range(place, min(place + length, len(data))):
                data[at] ^= 1 << draw.randrange(8)
        case 2:
            width = draw.choice((1, 2, 4, 8))
            value = draw.choice(_NUMBERS) % 256**width
            data[place : place + width] = value.to_bytes(width, draw.choice(("little", "big")))
        case 3:
            del data[place : place + length]
        case 4:
            begin = draw.randrange(len(data) + 1)
            data[place:place] = data[begin : begin + length]
        case 5:
            token = draw.choice(tokens)
            data[place : place + draw.choice((0, len(token)))] = token
        case 6:
            other = draw.choice(corpus)
            begin = draw.randrange(len(other))
            data[place : place + length] = other[begin : begin + length]
        case _:
            del data[place:]


def fuzz(target: Target, seed: int, numbers: range, keep: Path | None) -> int:
    """Try the inputs of a seed that have these numbers; return the number of findings."""
    signal.signal(signal.SIGPROF, _too_long)
    corpus = target.corpus()  # Arrow's allocator reserves address space at its first use
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY, most))
    read = found = 0
    slowest, said = 0.0, time.monotonic()
    for tried, (number, data) in enumerate(mutants(corpus, target.TOKENS, seed, numbers), 1):
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            read += target.check(data)
        except Exception:
            found += 1
            print(f"input {number} of seed {seed}:\n{traceback.format_exc()}", flush=True)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{seed}-{number}").write_bytes(data)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, time.process_time() - began)
        if time.monotonic() - said > _PROGRESS or tried == len(numbers):
            said = time.monotonic()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
            print(
                f"{tried:,} inputs, {read:,} read, {tried - read - found:,} refused, {found:,} "
                f"findings; the slowest {slowest:.3f} s, at most {peak:.0f} MB",
                flush=True,
            )
    return found


def _too_long(*_: object) -> NoReturn:
    raise TimeoutError(f"an input took more than {LONGEST:g} s of processor time")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    known = sorted(
        path.stem
        for path in (Path(__file__).parent / "targets").glob("*.py")
        if path.stem[0] != "_"
    )
    parser.add_argument("target", choices=known)
    parser.add_argument("--inputs", type=int, default=10_000, help="how many are tried")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the inputs that are findings")
    options = parser.parse_args()
    target = cast("Target", importlib.import_module(f"bench.fuzz.targets.{options.target}"))
    numbers = range(options.first, options.first + options.inputs)
    return 1 if fuzz(target, options.seed, numbers, options.keep) else 0
