"""An encoding of a user's own as a codec: what it encodes, and bodies that it did not write."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.encoding_choice import EncodingChoice
from testbed.errors import SpecError, TestbedError
from testbed.plugins.source_files import PluginSource, install
from testbed.updates import DenseUpdate, SparseUpdate
from testbed.wire import WireError
from testbed.wire.encodings import DENSE, OWN, Codec, describe
from testbed.wire.own_encoding import EncodeError, OwnCodec, codec_of

SIZES = (12, 3, 5)
SIGNS = Path(__file__).parents[2] / "examples" / "plugin" / "signs.py"
WRONG = """
from testbed.updates import DenseUpdate, SparseUpdate


class Base:
    def __init__(self, sizes, most=1000):
        self.most = most

    def longest(self):
        return self.most

    def encode(self, update):
        return update.values.tobytes()

    def decode(self, body):
        return DenseUpdate(body)


class Text(Base):
    def encode(self, update):
        return "text"


class Fraction(Base):
    def longest(self):
        return 1.5
"""


@pytest.fixture(scope="module", autouse=True)
def plugins() -> Iterator[None]:
    install([PluginSource("signs", SIGNS.read_text()), PluginSource("wrong_encodings", WRONG)])
    yield


def choice(own: str, **options: Any) -> EncodingChoice:
    return EncodingChoice.model_validate({"own": own, "options": options})


def test_an_update_is_read_as_the_sender_has_rounded_it() -> None:
    codec = codec_of(EncodingChoice.model_validate("signs:Signs"), SIZES)
    update = DenseUpdate(np.linspace(-2, 3, 20, dtype=np.float32))
    encoding, pieces = codec.encode(update)
    body = b"".join(pieces)
    assert (encoding, describe(encoding)) == (OWN, "own")
    assert len(body) == codec.measure(update) == codec.longest == 3 * 4 + 3
    read = codec.decode(encoding, memoryview(body))
    assert read.values.tobytes() == codec.rounded(update).values.tobytes()
    assert np.array_equal(read.values > 0, update.values >= 0)
    assert read.values[0] == pytest.approx(-np.abs(update.values[:12]).mean(), rel=1e-6)


def test_the_other_kind_of_update_is_refused_with_the_line() -> None:
    codec = OwnCodec(choice("signs:Signs"), SIZES)
    update = SparseUpdate(np.array([1], np.uint32), np.array([1], np.float32))
    with pytest.raises(
        EncodeError, match=r"a sparse update \(signs.py, line \d+\): TypeError: only"
    ):
        codec.encode(update)


@given(st.binary(max_size=40), st.integers(0, 255))
def test_a_body_from_the_network_is_an_update_or_a_wire_error(body: bytes, encoding: int) -> None:
    for name in ("signs:Signs", "wrong_encodings:Base"):
        codec = OwnCodec(choice(name), SIZES)
        try:
            read = codec.decode(encoding, memoryview(body))
        except WireError:
            continue
        assert encoding == OWN and read.values.shape == (20,) and read.values.dtype == np.float32


def test_other_runs_do_not_read_it() -> None:
    with pytest.raises(WireError, match="an update encoded as own"):
        Codec(EncodingChoice(), SIZES).decode(OWN, memoryview(b""))
    with pytest.raises(WireError, match="in encoding 1"):
        OwnCodec(choice("signs:Signs"), SIZES).decode(DENSE, memoryview(bytes(15)))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("Base", {"most": 7}, r"encode\(\) returned 80 bytes, and must return at most 7 bytes"),
        ("Text", {}, r"encode\(\) returned str"),
        ("Fraction", {}, r"longest\(\) returned 1.5"),
    ],
)
def test_what_breaks_its_own_word_is_told(name: str, options: dict[str, int], said: str) -> None:
    with pytest.raises(TestbedError, match=said):
        OwnCodec(choice(f"wrong_encodings:{name}", **options), SIZES).encode(
            DenseUpdate(np.ones(20, np.float32))
        )


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(SpecError, match="the module signs has no 'Sings'"):
        codec_of(choice("signs:Sings"), SIZES)


def test_a_choice_is_own_or_built_in() -> None:
    assert choice("signs:Signs").model_dump() == {"own": "signs:Signs", "options": {}}
    assert choice("signs:Signs").name == "Signs"
    assert "own" not in EncodingChoice().model_dump()
    with pytest.raises(ValueError, match="leave out values"):
        EncodingChoice.model_validate({"own": "signs:Signs", "values": "int8"})
    with pytest.raises(ValueError, match="name it by own"):
        EncodingChoice.model_validate({"options": {"a": 1}})
