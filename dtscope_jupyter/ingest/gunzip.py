# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Gzip data as they come out, also of a file that ends early: all that came out before is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isal import igzip_lib

if TYPE_CHECKING:
    from typing import BinaryIO

_PACKED_BYTES = 2**16


class Gunzip:
    """Reads the members of a gzip file one after the other; `damage` says why they ended early, where they did."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` stands at the beginning of the data."""
        self.damage: str | None = None
        self._file = file
        self._member: Any = _member()

    def read(self, size: int) -> bytes:
        """Between 1 and `size` bytes; b"" at the end."""
        piece = b""
        while not piece and self.damage is None:
            if self._member.eof:
                packed = self._next_member()
            else:
                packed = self._file.read(_PACKED_BYTES) if self._member.needs_input else b""
                if self._member.needs_input and not packed:
                    self.damage = "the gzip data end early"
                    break
            if self._member.eof:
                break
            piece = self._unpacked(packed, size)
        return piece

    def _next_member(self) -> bytes:
        packed: bytes = self._member.unused_data or self._file.read(_PACKED_BYTES)
        if packed.strip(b"\0"):
            self._member = _member()
        return packed

    def _unpacked(self, packed: bytes, size: int) -> bytes:
        try:
            return bytes(self._member.decompress(packed, size))
        except igzip_lib.error as error:  # type: ignore[misc]  # an exception, unlike its stub says
            self.damage = f"the gzip data are damaged: {error}"
            return b""


def _member() -> Any:
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
