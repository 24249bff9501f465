"""Decode an image file to the 8-bit values that it holds, or refuse it by name.

Pillow decodes whatever it can, and converts between modes by clipping and by dropping: 16 bits become
white, transparent pixels show colours that no viewer shows, of an animation the first frame is left.
Here a file whose values 8 bits of grey or RGB cannot hold is refused. Palettes are looked up, 1, 2 and
4 bits are scaled to 0 to 255, and an image that is stored turned (EXIF) is turned back. Gamma and
colour profiles are not applied: values are those of the file.
"""

import io
import warnings
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from testbed.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are read; Pillow starts other programs for some of its others."""
_GREY, _COLOUR = ("1", "L", "LA"), ("P", "PA", "RGB", "RGBA", "RGBX")
_MOST_PIXELS = 1 << 26
_BITS_PER_SAMPLE = 258  # a tag of TIFF


def decoded(path: PurePath, content: bytes) -> npt.NDArray[np.uint8]:
    """Decode the content of a file.

    Returns:
        The values, (1, height, width) of a grey image and (3, height, width) of one in colours.

    Raises:
        DataError: Pillow is missing, the file is damaged, or 8 bits of grey or RGB cannot hold it.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise DataError(
            f"{path} is decoded by Pillow, which is not installed: `pip install pillow`"
        ) from error
    try:
        with warnings.catch_warnings(action="ignore"):  # a decoder's do not name the file
            image = Image.open(io.BytesIO(content), formats=_FORMATS)
            if reason := _refusal(image):
                raise DataError(f"{path} {reason}")
            upright = ImageOps.exif_transpose(image)
            if _is_transparent(upright):
                raise DataError(
                    f"{path} has transparent pixels (mode {image.mode}): put it on a background"
                )
            pixels = np.asarray(upright.convert("L" if image.mode in _GREY else "RGB"))
    except DataError:
        raise
    except UnidentifiedImageError as error:  # its text is the address of the bytes
        raise DataError(
            f"{path} is no image that can be decoded: it is none of {', '.join(_FORMATS)}"
        ) from error
    except Exception as error:  # of a damaged file a decoder raises anything, also SyntaxError
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{path} is no image that can be decoded: {reason}") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _refusal(image: "PillowImage") -> str | None:
    """Return why 8 bits of grey or RGB cannot hold an image, whose pixels are not read yet."""
    width, height = image.size
    if width * height > _MOST_PIXELS:
        return f"is of {width:,} × {height:,} pixels, and {_MOST_PIXELS:,} are the most"
    # A photograph with a preview (MPO) is a photograph.
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
        return f"has {getattr(image, 'n_frames', 0)} frames: keep one of them"
    if (bits := _bits(image)) > 8 or image.mode in ("I", "F") or image.mode.startswith("I;"):
        depth = f"{bits} bits" if bits > 8 else "more than 8 bits"
        return (
            f"has values of {depth} (mode {image.mode}), and images are read in 8 bits: convert it, or "
            "write a function that returns float32 (docs/experiments.md, datasets)"
        )
    if image.mode not in (*_GREY, *_COLOUR):
        return f"is in the mode {image.mode}: convert it to grey or RGB"
    return None


def _bits(image: "PillowImage") -> int:
    """Return the bits of a value in the file, of which Pillow may keep 8; at least 1."""
    if image.format == "TIFF":
        tags: Mapping[int, tuple[int, ...]] = getattr(image, "tag_v2", {})
        return max(tags.get(_BITS_PER_SAMPLE, (1,)))
    bits = 1
    for _, _, _, found in getattr(image, "tile", ()):
        arguments = found if isinstance(found, tuple) else (found,)
        if str(arguments[0]).endswith(";16B"):  # PNG, and PGM of 65,535 levels
            bits = 16
        elif image.format == "PPM" and len(arguments) == 2:
            bits = max(bits, int(arguments[1]).bit_length())  # the value of white
    return bits


def _is_transparent(image: "PillowImage") -> bool:
    """Return True if a pixel is not opaque. An alpha channel that is full everywhere is no matter."""
    if image.mode not in ("LA", "PA", "RGBA") and "transparency" not in image.info:
        return False
    return image.convert("RGBA").getchannel("A").getextrema() != (255, 255)
