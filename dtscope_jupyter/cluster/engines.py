# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Finds an ipyparallel cluster by its name and chooses engines of it, a rank each."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import __version__
from dtscope_jupyter.cluster import engine
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.view.text import count

if TYPE_CHECKING:
    from collections.abc import Callable

_CONNECT_S = 10.0
_ANSWER_S = 30.0
_RELEASE_S = 10.0
_FILE = re.compile(r"ipcontroller(?:-(?P<cluster>.+))?-client\.json")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank runs: an engine, its host, and its place there as torchrun numbers it."""

    engine: int
    host: str
    gpus: int
    places: dict[str, int]


class Engines:
    """The engines that ranks run on, in the order of the ranks; holds the connection until `close`."""

    def __init__(self, name: str, client: Any, seats: list[Seat]) -> None:
        self.name = name
        self.seats = seats
        self._client = client
        self._sending = threading.Lock()

    @property
    def one_host(self) -> bool:
        """Whether all are on one host."""
        return self.seats[0].places["hosts"] == 1

    def backend(self, asked: str | None) -> str:
        """What ranks communicate by: what was asked for, else by hardware; DtscopeError where there are too few GPUs."""
        short = [seat for seat in self.seats if seat.gpus < seat.places["local_world_size"]]
        if asked == "nccl" and short:
            have = f"{short[0].places['local_world_size']} ranks on {short[0].host}, which shows {short[0].gpus} GPUs"
            raise DtscopeError(f"--backend nccl: cluster {self.name!r} would have {have}: lower -n or use --backend gloo")
        return asked or ("gloo" if short else "nccl")

    def call(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of `engine` on a rank's engine; what `answer` waits for. DtscopeError where the engine is gone."""
        number = self.seats[rank].engine
        try:
            with self._sending:  # ipyparallel numbers messages without a lock
                return self._client[number].apply_async(function, *arguments)
        except (IndexError, OSError, _errors().KernelError) as error:
            raise DtscopeError(f"engine {number} of cluster {self.name!r} is gone: {_first(error)}") from error

    def answer(self, rank: int, asked: Any, timeout: float | None = _ANSWER_S) -> Any:
        """The value of a call; DtscopeError, one line, where the engine is gone, busy or can't."""
        return _answer(self._client, f"engine {self.seats[rank].engine} of cluster {self.name!r}", asked, timeout)

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Calls a function on every engine at once; the values by rank."""
        asked = [self.call(rank, function, *arguments) for rank in range(len(self.seats))]
        return [self.answer(rank, each) for rank, each in enumerate(asked)]

    def release(self, token: str) -> None:
        """Has every engine that is still there end what `token` names."""
        asked = {}
        for rank in range(len(self.seats)):
            with suppress(DtscopeError):
                asked[rank] = self.call(rank, engine.end, token)
        for rank, each in asked.items():
            with suppress(DtscopeError):
                self.answer(rank, each, _RELEASE_S)

    def close(self) -> None:
        """Hangs up."""
        self._client.close()


def connect(name: str, world_size: int | None) -> Engines:
    """Engines of the cluster `name` for that many ranks (default: all of them); DtscopeError, one line, where they can't be had.

    `name` is the cluster's id, a profile whose cluster has none, or the path of its client's connection file. Ranks
    follow the numbers of the engines, those of one host together.
    """
    client = _client(name)
    try:
        ids = list(client.ids)
        _check_size(name, len(ids), world_size)
        return Engines(name, client, _seats(_facts(client, name, ids), world_size or len(ids)))
    except BaseException:
        client.close()
        raise


def _check_size(name: str, engines: int, world_size: int | None) -> None:
    if not engines:
        raise DtscopeError(f"cluster {name!r} has no engines yet: wait until they have started, or start some with ipcluster engines")
    if world_size is not None and not 1 <= world_size <= engines:
        raise DtscopeError(f"-n {world_size}: cluster {name!r} has {count(engines, 'engine')}, a rank each: choose 1 to {engines}")


def _client(name: str) -> Any:
    try:
        import ipyparallel
    except ImportError as error:
        raise DtscopeError("--cluster needs ipyparallel: pip install 'dtscope-jupyter[cluster]'") from error
    file = _connection_file(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a controller on another host is what is wanted
            return ipyparallel.Client(str(file), timeout=_CONNECT_S)
    except (OSError, ValueError, KeyError, TimeoutError, ipyparallel.error.KernelError) as error:
        raise DtscopeError(f"cluster {name!r} does not answer ({_first(error)}): does its controller run? ipcluster list tells") from error


def _connection_file(name: str) -> Path:
    given = Path(name).expanduser()
    if given.suffix == ".json" and given.is_file():
        return given
    known = _known()
    if name not in known:
        others = f"; known are {', '.join(sorted(known))}" if known else ""
        start = f"ipcluster start --cluster-id={name} -n 2"
        raise DtscopeError(f"no ipyparallel cluster is named {name!r}{others}: start it with {start}, or give its connection file")
    return known[name]


def _known() -> dict[str, Path]:
    """Connection files by cluster id; of a cluster without id by its profile."""
    from IPython.paths import get_ipython_dir

    found: dict[str, Path] = {}
    for file in sorted(Path(get_ipython_dir()).glob("profile_*/security/ipcontroller*-client.json")):
        if match := _FILE.fullmatch(file.name):
            found.setdefault(match["cluster"] or file.parents[1].name.removeprefix("profile_"), file)
    return found


def _facts(client: Any, name: str, ids: list[int]) -> dict[int, dict[str, Any]]:
    asked = {number: client[number].apply_async(engine.facts) for number in ids}
    found = {number: _answer(client, f"engine {number} of cluster {name!r}", each, _ANSWER_S) for number, each in asked.items()}
    ours = {"dtscope": __version__, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for number, facts in found.items():
        for what, title in (("dtscope", "dtscope-jupyter"), ("python", "Python")):
            if facts[what] != ours[what]:
                where = f"engine {number} of cluster {name!r}, on {facts['host']},"
                raise DtscopeError(f"{where} has {title} {facts[what]}, this notebook {ours[what]}: install one version on both sides")
    return found


def _seats(facts: dict[int, dict[str, Any]], world_size: int) -> list[Seat]:
    """The first engines, those of one host together, and their numbers as torchrun gives them."""
    by_host: dict[tuple[str, str], list[int]] = {}
    for number in sorted(facts)[:world_size]:
        by_host.setdefault((facts[number]["host"], facts[number]["boot"]), []).append(number)
    seats: list[Seat] = []
    for host, ((name, _), numbers) in enumerate(by_host.items()):
        for local, number in enumerate(numbers):
            places = {
                "rank": len(seats), "world_size": world_size, "local_rank": local, "local_world_size": len(numbers),
                "host": host, "hosts": len(by_host),
            }  # fmt: skip
            seats.append(Seat(number, name, facts[number]["gpus"], places))
    return seats


def _answer(client: Any, who: str, asked: Any, timeout: float | None) -> Any:
    errors = _errors()
    try:
        value = asked.get(timeout)
    except TimeoutError as error:
        raise DtscopeError(f"{who} has not answered for {timeout:g} s: it is busy with something else, or gone") from error
    except errors.RemoteError as error:
        raise DtscopeError(_refusal(who, error)) from error
    except errors.KernelError as error:
        raise DtscopeError(f"{who} is gone: {_first(error)}") from error
    client.purge_local_results(asked)
    client.history.clear()
    return value


def _errors() -> Any:
    from ipyparallel import error

    return error


def _refusal(who: str, error: Any) -> str:
    if error.ename in ("ModuleNotFoundError", "ImportError"):
        return f"{who} can't import what a rank needs ({error.evalue}): pip install dtscope-jupyter in the engines' environment"
    if error.ename == "EngineError":
        return f"{who} has died"
    return str(error.evalue) if error.ename == "DtscopeError" else f"{who} could not do it: {error.ename}: {error.evalue}"


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
