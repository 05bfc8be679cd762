"""Types that need no registration: the standard library's, and those of numpy and pandas.

Each is stored as an object under a name of holdfast's own (`python:deque`), out of plain data. A
class is recognised by its name among the modules that the process has imported: an unused library
costs nothing, and none is imported because data names it.

A builder receives decoded data, and checks its types before it calls anything: a `deque` of an IPv4
network would hold four thousand million addresses, out of 190 bytes. Data that it would refuse is
refused on saving, too.
"""

from __future__ import annotations

import collections
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from holdfast.codec.builtin_types import has_spread_hashes
from holdfast.codec.registry import RegisteredType
from holdfast.codec.unsupported import Refusal
from holdfast.errors import HoldfastError, UnknownTypeError

MAX_PATTERN = 4096  # characters of a regular expression: compiling one takes time and memory beyond its length
MAX_WIDE_CLASSES = 8  # sets of characters beyond Latin-1 in one expression: each takes 10 ms
MAX_TEXT = 256  # of an address
_WIDE = re.compile(r"[^\x00-\xff]|\\[uUN]")

FACTORIES: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes, bytearray)
}
"""What a defaultdict may make its values with."""

Take = Callable[[Any], Any]
Build = Callable[[Any], Any]


def expect(value: Any, *kinds: type[Any]) -> Any:
    """Return the value, if it is of exactly one of these types."""
    if type(value) not in kinds:
        raise TypeError(f"a {type(value).__name__} stands where a {kinds[0].__name__} is expected")
    return value


def short_text(value: Any) -> str:
    if len(expect(value, str)) > MAX_TEXT:
        raise ValueError(f"a text of {len(value)} characters stands where at most {MAX_TEXT} are expected")
    text: str = value
    return text


def members_of(value: Any) -> Any:
    """Return the members of a set, or the keys of a dict, that is to be built."""
    if not has_spread_hashes(expect(value, list, tuple)):
        raise ValueError("its members can't be told apart")
    return value


# -- collections -------------------------------------------------------------------------------------------------------


def _deque(parts: Any) -> collections.deque[Any]:
    members, most = expect(parts, list, tuple)
    return collections.deque(expect(members, list), expect(most, int, type(None)))


def _make_ordered_dict(parts: Any) -> collections.OrderedDict[Any, Any]:
    pairs = [expect(pair, tuple, list) for pair in expect(parts, list)]
    members_of([key for key, _ in pairs])
    return collections.OrderedDict(pairs)


def _counter(parts: Any) -> collections.Counter[Any]:
    return collections.Counter(expect(parts, dict))


def _take_default(value: collections.defaultdict[Any, Any]) -> list[Any]:
    factory = value.default_factory
    if factory is None:
        return [None, dict(value)]
    name = getattr(factory, "__name__", "")
    if FACTORIES.get(name) is not factory:
        raise Refusal(
            "a defaultdict can't be stored exactly if its factory is code of your own",
            f"Store dict(x), or use a factory among {', '.join(FACTORIES)}",
        )
    return [name, dict(value)]


def _default(parts: Any) -> collections.defaultdict[Any, Any]:
    name, held = expect(parts, list, tuple)
    factory = None if name is None else FACTORIES[expect(name, str)]
    return collections.defaultdict(factory, expect(held, dict))


# -- other values of the standard library ------------------------------------------------------------------------------


def pattern_problem(pattern: str | bytes) -> str | None:
    """Return why a regular expression is refused; None if it is accepted."""
    if len(pattern) > MAX_PATTERN:
        return f"of more than {MAX_PATTERN} characters"
    if isinstance(pattern, str) and pattern.count("[") > MAX_WIDE_CLASSES and _WIDE.search(pattern):
        return f"with more than {MAX_WIDE_CLASSES} sets of characters beyond Latin-1"
    return None


def compile_pattern(pattern: Any, flags: Any = 0) -> re.Pattern[Any]:
    problem = pattern_problem(expect(pattern, str, bytes))
    if problem is not None:
        raise ValueError(f"it is a regular expression {problem}, which is not compiled")
    return re.compile(pattern, expect(flags, int) & ~re.DEBUG)


def _take_pattern(value: re.Pattern[Any]) -> list[Any]:
    problem = pattern_problem(value.pattern)
    if problem is not None:
        raise Refusal(
            f"a regular expression {problem} can't be stored", "Store its text, and compile it where it is used"
        )
    return [value.pattern, int(value.flags & ~re.DEBUG)]


def _pattern(parts: Any) -> re.Pattern[Any]:
    return compile_pattern(*expect(parts, list, tuple))


def _take_view(value: memoryview) -> bytes | bytearray:
    try:
        is_plain = value.format == "B" and value.ndim == 1 and value.c_contiguous
        readonly = value.readonly
    except ValueError as error:  # it was released
        raise Refusal(f"a memoryview can't be read ({error})", "Store bytes(x) while it is in use") from error
    if not is_plain:
        raise Refusal("a memoryview of something else than bytes can't be stored exactly", "Store bytes(x)")
    return bytes(value) if readonly else bytearray(value)


def _view(parts: Any) -> memoryview:
    return memoryview(expect(parts, bytes, bytearray))


def address_builder(cls: type[Any]) -> Build:
    return lambda text: cls(short_text(text))


# -- finding them ------------------------------------------------------------------------------------------------------

_ADDRESSES = tuple(
    f"{version}{family}" for version in ("IPv4", "IPv6") for family in ("Address", "Interface", "Network")
)

# By the class's module and name: how a value is taken apart, and how it is rebuilt.
_STORED: dict[tuple[str, str], tuple[Take, Build]] = {
    ("collections", "deque"): (lambda value: [list(value), value.maxlen], _deque),
    ("collections", "OrderedDict"): (lambda value: list(value.items()), _make_ordered_dict),
    ("collections", "Counter"): (dict, _counter),
    ("collections", "defaultdict"): (_take_default, _default),
    ("re", "Pattern"): (_take_pattern, _pattern),
    ("builtins", "memoryview"): (_take_view, _view),
}
_PREFIX = "python:"
_LIBRARIES = ("numpy", "pandas")

_by_class: dict[type[Any], RegisteredType] = {}
_by_name: dict[str, RegisteredType] = {}


class _StandardKind:
    def __init__(self, name: str, take: Take, build: Build) -> None:
        self._name = name
        self.take_apart = take
        self._build = build

    def rebuild(self, parts: Any) -> Any:
        try:
            return self._build(parts)
        except (HoldfastError, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise UnknownTypeError(
                f"The data holds a {self._name.partition(':')[2]} that can't be built here ({error!s:.200}): it is "
                "damaged, or was written where other versions of Python and its libraries are in use"
            ) from error


def entry_of(cls: type[Any]) -> RegisteredType | None:
    """Return how objects of a class are stored; None if it is none of these."""
    known = _by_class.get(cls)
    if known is None:
        module, name = cls.__module__, cls.__qualname__
        if (module, name) in _STORED or (module == "ipaddress" and name in _ADDRESSES):
            known = _find_entry(module, name)
        elif module.partition(".")[0] in _LIBRARIES:
            known = _library_entry(cls)
        if known is None or known.cls is not cls:  # a class that only has the same name
            return None
        _by_class[cls] = known
    return known


def find_entry(name: str) -> RegisteredType | None:
    """Return the entry of one of holdfast's own names; None if it is none of these."""
    known = _by_name.get(name)
    if known is not None:
        return known
    library, _, own = name.partition(":")
    if library == "python":
        module = next((module for module, item in _STORED if item == own), "ipaddress" if own in _ADDRESSES else None)
        known = None if module is None else _find_entry(module, own)
    elif library in _LIBRARIES:
        from holdfast.codec import array_types

        known = array_types.find_entry(name)
    if known is not None:
        _by_name[name] = known
    return known


def is_standard(name: str) -> bool:
    """Return whether a name is of a class of Python's or of a library's own.

    Its stored parts are not fields that a user knows.
    """
    return name.startswith((_PREFIX, *(f"{library}:" for library in _LIBRARIES)))


def _find_entry(module: str, name: str) -> RegisteredType:
    if module == "ipaddress":
        import ipaddress

        cls = getattr(ipaddress, name)
        return standard_type(cls, _PREFIX + name, str, address_builder(cls))
    return standard_type(getattr(sys.modules[module], name), _PREFIX + name, *_STORED[module, name])


def standard_type(cls: type[Any], name: str, take: Take, build: Build) -> RegisteredType:
    return RegisteredType(cls, name, _StandardKind(name, take, build))


def _library_entry(cls: type[Any]) -> RegisteredType | None:
    from holdfast.codec import array_types

    return array_types.entry_of(cls)
