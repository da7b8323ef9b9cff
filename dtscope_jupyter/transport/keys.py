# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""CURVE keys: one folder for the collector, one file for its ranks, one for notebooks. All are 0600, none is ever logged.

    DIR/collector.json   the collector's own pair, and the public keys of who may ship and who may read
    DIR/rank.json        for every rank (DTRAINSCOPE_KEYS): a pair, and the collector's public key
    DIR/notebook.json    for notebooks: the same; it may read and not write
"""

from __future__ import annotations

import os
import stat
import struct
from typing import TYPE_CHECKING, TypeVar

import msgspec
import zmq
from zmq.utils import z85

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from pathlib import Path

_KEY_BYTES = 32
_NAMES = ("collector.json", "rank.json", "notebook.json")


class CollectorKeys(msgspec.Struct, frozen=True):
    """What the collector needs: its pair, and who may do what."""

    public: str
    secret: str
    ranks: list[str]
    notebooks: list[str]

    def __repr__(self) -> str:
        """Without the secret."""
        return f"CollectorKeys(public={self.public!r})"


class ClientKeys(msgspec.Struct, frozen=True):
    """What a rank or a notebook needs: its pair, and whom it talks to."""

    public: str
    secret: str
    collector: str

    def __repr__(self) -> str:
        """Without the secret."""
        return f"ClientKeys(public={self.public!r})"


_Keys = TypeVar("_Keys", CollectorKeys, ClientKeys)


def create(folder: Path) -> list[Path]:
    """Makes the three files in `folder` (0700, made if missing) and returns them; DtscopeError where keys lie there."""
    names = [folder / name for name in _NAMES]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        collector, rank, notebook = (_pair() for _ in names)
        values = [
            CollectorKeys(*collector, ranks=[rank[0]], notebooks=[notebook[0]]),
            ClientKeys(*rank, collector=collector[0]),
            ClientKeys(*notebook, collector=collector[0]),
        ]
        for path, value in zip(names, values, strict=True):
            _write_new(path, msgspec.json.format(msgspec.json.encode(value)))
    except FileExistsError as error:
        raise DtscopeError(f"{str(error.filename)!r} is there already; choose an empty directory, or remove the old keys") from error
    except OSError as error:
        raise DtscopeError(f"can't write keys into {str(folder)!r}: {error.strerror}; choose another directory") from error
    return names


def load_collector(path: Path) -> CollectorKeys:
    """Reads the collector's keys from a folder that `dtscope keys` made, or from a file of it; DtscopeError."""
    keys = _load(_file(path, "collector"), CollectorKeys)
    _check(path, [keys.public, keys.secret, *keys.ranks, *keys.notebooks])
    return keys


def load_client(path: Path, role: str = "rank") -> ClientKeys:
    """Reads the keys of a rank or a notebook (`role`) from that folder, or from a file of it; DtscopeError."""
    keys = _load(_file(path, role), ClientKeys)
    _check(path, [keys.public, keys.secret, keys.collector])
    return keys


def _file(path: Path, role: str) -> Path:
    """The file for a role: in the folder, beside the file of another role, or else the file that was named."""
    if path.is_dir():
        return path / f"{role}.json"
    beside = path.with_name(f"{role}.json")
    return beside if path.name in _NAMES and beside.exists() else path


def _pair() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data + b"\n")


def _load(path: Path, kind: type[_Keys]) -> _Keys:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            raw = file.read(2**16)
        keys = msgspec.json.decode(raw, type=kind)
    except OSError as error:
        message = f"can't read the keys in {str(path)!r}: {error.strerror}; make them with `dtscope keys DIR` and set DTRAINSCOPE_KEYS"
        raise DtscopeError(message) from error
    except msgspec.MsgspecError as error:
        raise DtscopeError(f"{str(path)!r} holds no keys for this use; make them with `dtscope keys DIR`") from error
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid not in (os.geteuid(), 0):
        raise DtscopeError(f"{str(path)!r} is open to others; run `chmod 600` on it, as its owner")
    return keys


def _check(path: Path, keys: list[str]) -> None:
    for key in keys:
        try:
            good = len(z85.decode(key)) == _KEY_BYTES
        except (ValueError, KeyError, struct.error):
            good = False
        if not good:
            raise DtscopeError(f"{str(path)!r} holds something that is no key; make keys with `dtscope keys DIR`")
