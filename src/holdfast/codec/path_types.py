"""Paths of pathlib as values."""

from __future__ import annotations

from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath

from holdfast.codec.builtin_types import decode_surrogates, encode_surrogates
from holdfast.codec.unsupported import Refusal
from holdfast.errors import UnknownTypeError

# Their indexes are written into the data.
FLAVOURS: tuple[type[PurePath], ...] = (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)


def encode(value: PurePath) -> bytes:
    text = str(value)
    if type(value)(text).parts != value.parts:
        # Some Python versions give PureWindowsPath('./c:x') the text 'c:x', which is another path.
        raise Refusal(f"the path {text!r} does not come back from its own text", "Store its parts: x.parts")
    return bytes((FLAVOURS.index(type(value)),)) + encode_surrogates(text)


def decode(data: bytes) -> PurePath:
    flavour, text = FLAVOURS[data[0]], decode_surrogates(data[1:])
    try:
        return flavour(text)
    except NotImplementedError as error:
        raise UnknownTypeError(
            f"The data holds a {flavour.__name__}, which Python can't create on this operating system. "
            "Restore it where it was saved, or store pure paths: pathlib.Pure" + flavour.__name__
        ) from error
