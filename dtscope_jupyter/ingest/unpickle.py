# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Pickles of plain values only: dicts, lists, tuples, text, numbers. Nothing that could run or import code.

The C unpickler is no choice even with `find_class` closed: one LONG_BINPUT makes it grow its memo to any size that
the file asks for. So this is the unpickler in Python with all opcodes gone but those that build plain values.
"""

from __future__ import annotations

import io
import pickle
import struct
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dtscope_jupyter.ingest.files import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_STEPS = 4 * 2**20
_PLAIN = [
    "PROTO",
    "FRAME",
    "STOP",
    "MARK",
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "EMPTY_LIST",
    "APPEND",
    "APPENDS",
    "EMPTY_DICT",
    "SETITEM",
    "SETITEMS",
    "EMPTY_TUPLE",
    "TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
    "BINPUT",
    "LONG_BINPUT",
    "MEMOIZE",
    "BINGET",
    "LONG_BINGET",
]


_DAMAGE = (
    pickle.UnpicklingError, struct.error, EOFError, ValueError, TypeError, IndexError, AttributeError, OverflowError, MemoryError,
)  # fmt: skip


def _counted(load: Callable[[Any], None]) -> Callable[[_Plain], None]:
    def counting(self: _Plain) -> None:
        self.left -= 1
        if self.left < 0:
            message = f"more than {_MOST_STEPS >> 20} Mi steps, which no dump needs: given up"
            raise pickle.UnpicklingError(message)
        load(self)

    return counting


class _Plain(pickle._Unpickler):  # noqa: SLF001 - the C one can't be restricted
    """Knows the opcodes of plain values and no other, and takes so many and no more: a byte may ask for 64 of memory."""

    left = _MOST_STEPS
    dispatch: ClassVar[dict[int, Any]] = {
        code[0]: _counted(pickle._Unpickler.dispatch[code[0]])  # noqa: SLF001
        for code in (getattr(pickle, name) for name in _PLAIN)
    }

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuses; no opcode that comes here is left, either."""
        message = f"the pickle asks for {module}.{name}"
        raise pickle.UnpicklingError(message)


def plain_value(data: bytes) -> Any:
    """The value in a pickle; Unreadable where it is damaged or asks for anything but plain values (a class, code)."""
    try:
        return _Plain(io.BytesIO(data)).load()
    except KeyError as error:
        code = error.args[0]
        name = _NAMES.get(code, repr(code)) if isinstance(code, int) else repr(code)
        raise Unreadable(f"refused: the pickle holds more than plain values (opcode {name}), so it might carry code") from error
    except _DAMAGE as error:
        raise Unreadable(f"no whole pickle: {str(error) or type(error).__name__}") from error


_NAMES = {value[0]: name for name, value in vars(pickle).items() if name.isupper() and isinstance(value, bytes) and len(value) == 1}
