"""Values of tools, models and interpreters as plain data, and back; identities without addresses."""

from __future__ import annotations

import builtins
import hashlib
import io
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import PIL.Image  # type: ignore[import-not-found]  # Pillow comes with smolagents
from smolagents.agent_types import AgentImage, AgentType
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
from smolagents.monitoring import TokenUsage

from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, HoldfastError, HoldfastWarning, UsageError

IMAGE, LOST, FAILED, ANSWERED = "holdfast_image", "holdfast_lost", "holdfast_failed", "holdfast_answered"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}")  # in the text of an object: another one in every process
MOST_IMAGES = 32
_codec = Codec()
_encoded: dict[str, bytes] = {}  # PNG by the digest of the pixels
_encoded_lock = threading.Lock()


def is_storable(value: Any) -> bool:
    """Return whether the store keeps a value as it is."""
    try:
        _codec.encode(value)
    except HoldfastError:
        return False
    return True


def dump_value(value: Any) -> Any:
    """Return a value as plain data: images as PNG. Of an object that can't be stored, keep the text."""
    if isinstance(value, AgentImage):
        value = value.to_raw()
    if isinstance(value, PIL.Image.Image):
        return _dump_image(value)
    if isinstance(value, AgentType):
        return str(value)
    if is_storable(value):
        return value
    if type(value) in (list, tuple):
        return type(value)(map(dump_value, value))
    if type(value) is dict and all(map(is_storable, value)):
        return {name: dump_value(item) for name, item in value.items()}
    return {LOST: type(value).__qualname__, "text": str(value)}


def load_value(dumped: Any, load_lost: Callable[[str, str], Any] = lambda _, text: text) -> Any:
    """Return the value of plain data. `load_lost` gets class and text of an object that was not stored."""
    if type(dumped) is dict:
        if dumped.keys() == {IMAGE} and isinstance(dumped[IMAGE], bytes):
            return load_image(dumped[IMAGE])
        if dumped.keys() == {LOST, "text"}:
            return load_lost(dumped[LOST], dumped["text"])
        return {name: load_value(value, load_lost) for name, value in dumped.items()}
    if type(dumped) in (list, tuple):
        return type(dumped)(load_value(item, load_lost) for item in dumped)
    return dumped


def is_lost(dumped: Any) -> bool:
    """Return whether an object of a value was not stored."""
    if type(dumped) is dict:
        return dumped.keys() == {LOST, "text"} or any(map(is_lost, dumped.values()))
    return type(dumped) in (list, tuple) and any(map(is_lost, dumped))


def warn_of_lost(statement: str, value: Any, then: str) -> None:
    """Warn of a value that can't be stored, when it is made: not only after a crash."""
    warnings.warn(
        f"{statement} a {type(value).__qualname__}, which can't be stored: {then}. Plain data can be stored",
        HoldfastWarning,
        stacklevel=4,
    )


def _dump_image(image: PIL.Image.Image) -> Any:
    try:
        return {IMAGE: encode_image(image)}
    except (OSError, ValueError):  # a mode that PNG lacks, or a file that is gone
        return {LOST: type(image).__qualname__, "text": _ADDRESS.sub("", repr(image))}


def encode_image(image: PIL.Image.Image) -> bytes:
    """Return an image as PNG. Steps of a memory repeat images, so the last ones are remembered."""
    raw = image.to_raw() if isinstance(image, AgentImage) else image
    key = digest_image(raw)
    png = _encoded.get(key)
    if png is None:
        file = io.BytesIO()
        raw.save(file, format="PNG")
        png = file.getvalue()
        with _encoded_lock:
            _encoded[key] = png
            while len(_encoded) > MOST_IMAGES:
                del _encoded[next(iter(_encoded))]
    return png


def load_image(stored: bytes) -> PIL.Image.Image:
    """Return a stored image: PNG, or another format if it came from another framework."""
    try:
        return PIL.Image.open(io.BytesIO(stored), formats=["PNG", "JPEG", "GIF", "WEBP"]).copy()
    except OSError as error:
        raise UsageError(
            f"a stored image of {len(stored):,} bytes can't be loaded ({error}). If the session was moved from another "
            "framework, its image was damaged there: move an earlier checkpoint"
        ) from error


def digest_image(image: PIL.Image.Image) -> str:
    """Return a digest of the pixels."""
    raw = image.to_raw() if isinstance(image, AgentImage) else image
    return hashlib.sha256(f"{raw.mode}{raw.size}".encode() + raw.tobytes()).hexdigest()[:32]


# -- failures ----------------------------------------------------------------------------------------------------------


def dump_failure(error: Exception) -> dict[str, Any]:
    about = {"type": type(error).__name__, "text": str(error)}
    return {FAILED: {**about, "args": error.args} if is_storable(error.args) else about}


def load_failure(recorded: Mapping[str, Any]) -> Exception:
    """Return an exception with the same name and text; of the same class if it is one of Python's own."""
    name, text = str(recorded["type"]), str(recorded["text"])
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and "args" in recorded:
        try:
            made = kind(*recorded["args"])
        except TypeError:  # UnicodeDecodeError and others take arguments of their own
            made = None
        if made is not None and str(made) == text:
            return made
    return type(name, (Exception,), {})(text)  # type: ignore[no-any-return]  # a class that is made here


# -- answers of a model ------------------------------------------------------------------------------------------------


def dump_answer(message: ChatMessage) -> dict[str, Any]:
    """Return what the model said, without the provider's own object."""
    usage = message.token_usage
    return {
        "content": message.content if is_storable(message.content) else str(message.content),
        "calls": None if message.tool_calls is None else [dump_call(tool_call) for tool_call in message.tool_calls],
        "usage": None if usage is None else [usage.input_tokens, usage.output_tokens],
    }


def load_answer(recorded: Mapping[str, Any]) -> ChatMessage:
    calls, content = recorded.get("calls"), recorded.get("content")
    is_parts = isinstance(content, list) and content and all(isinstance(part, dict) for part in content)
    if not is_parts and not isinstance(content, str | None):
        raise CorruptError(f"a recorded answer has no text as its content: {content!r:.80}")
    return ChatMessage(
        role=MessageRole.ASSISTANT,
        content=content,
        tool_calls=None if calls is None else [_load_call(call) for call in calls],
        token_usage=load_usage(recorded.get("usage")),
    )


def dump_call(call: ChatMessageToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.function.name, "arguments": dump_value(call.function.arguments)}


def _load_call(call: Mapping[str, Any]) -> ChatMessageToolCall:
    if not isinstance(call["name"], str) or not isinstance(call["id"], str | int | None):
        raise CorruptError(f"a recorded call has no name, or an odd id: {call!r:.100}")
    function = ChatMessageToolCallFunction(name=call["name"], arguments=call["arguments"])
    return ChatMessageToolCall(function=function, id=call["id"], type="function")


def load_usage(usage: Any) -> TokenUsage | None:
    return None if usage is None else TokenUsage(input_tokens=usage[0], output_tokens=usage[1])


# -- identities --------------------------------------------------------------------------------------------------------


class ValueIdentity:
    """What identifies values in every life of the program. Each image is digested once."""

    def __init__(self) -> None:
        self._images: dict[int, tuple[PIL.Image.Image, str]] = {}  # with the image, so that no other gets its id

    def of(self, value: Any) -> Any:
        """Return a value with digests for images, and texts without addresses of objects."""
        if isinstance(value, PIL.Image.Image):
            return {IMAGE: self._digest(value)}
        if isinstance(value, str):
            return _ADDRESS.sub("", str(value))
        if isinstance(value, ChatMessage):
            calls = [dump_call(tool_call) for tool_call in value.tool_calls or ()]
            return self.of([getattr(value.role, "value", value.role), value.content, calls])
        if isinstance(value, Mapping):
            return {str(name): self.of(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(item) for item in value]
        if value is None or isinstance(value, bool | int | float) or is_storable(value):
            return value
        return {"type": type(value).__qualname__, "text": _ADDRESS.sub("", str(value))}

    def describe(self, value: Any) -> Any:
        """Return a value that can be stored: itself, or what identifies it."""
        return value if is_storable(value) else self.of(value)

    def _digest(self, image: PIL.Image.Image) -> str:
        if id(image) not in self._images:
            self._images[id(image)] = (image, digest_image(image))
        return self._images[id(image)][1]
