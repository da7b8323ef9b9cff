# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What can be typed after %dtscope: one parser a subcommand; help and completion derive from them."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from typing import TYPE_CHECKING, NoReturn

from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PANELS = ("overlap", "gradients", "timeline", "waits", "bandwidth", "devices", "topology", "findings", "log")
FAULTS = ("straggler", "host_stall", "slow_link", "nan", "desync", "hang", "copy")
FORMATS = ("perfetto", "parquet", "html", "json")
COLLECTORS = ("steps", "collectives", "gradients", "host", "devices", "spans", "gradient_tiles")
READABLE = "a run directory, Kineto traces, Flight Recorder dumps, or a folder of them"
CAPTURES = ("profile", "stacks", "flight_recorder")

_LONGEST_MS = 3.6e6
_LEAST_DISK = 64 * 2**10
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class Parser(argparse.ArgumentParser):
    """Raises one line in place of printing usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """What is wrong, what may have been meant, and where more is told."""
        raise DtscopeError(f"{self.prog}: {message}{self._hint(message)} ({self._help})")

    @property
    def _help(self) -> str:
        return f"%dtscope help {self.prog.split()[-1]}"

    def _hint(self, message: str) -> str:
        """What may have been meant."""
        wrong = re.search(r"unrecognized arguments: (-\S+)|invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong is None:
            return ""
        options = [option for action in self._actions for option in action.option_strings]
        known = options if wrong[1] else re.findall(r"[\w-]+", wrong[3])
        return _nearest(wrong[1] or wrong[2], tuple(known))


def size(text: str) -> int:
    """Bytes of a size such as 2GiB, 500MB or 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if match is None or match[2] not in _SIZES or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write e.g. 2GiB or 500MB")
    return int(float(match[1]) * _SIZES[match[2]])


def disk(text: str) -> int:
    """A size in which a rank's files can begin."""
    found = size(text)
    if found < _LEAST_DISK:
        raise argparse.ArgumentTypeError(f"{text!r} is too little for what a rank writes: give at least 64KiB")
    return found


def share(text: str) -> float:
    """A share such as 1% or 0.01."""
    number = text.removesuffix("%")
    try:
        value = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share of the step time: write e.g. 1%")
    return value


def seconds(text: str) -> float:
    """A time limit, more than 0."""
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time limit: write seconds, e.g. 600")
    return value


def milliseconds(text: str) -> float:
    """A length of time, more than 0."""
    try:
        value = float(text.removesuffix("ms"))
    except ValueError:
        value = -1.0
    if not 0 < value <= _LONGEST_MS:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of a fault: write milliseconds up to an hour, e.g. 20")
    return value


def number(text: str) -> int:
    """A count, 1 or more."""
    if not re.fullmatch(r"\s*\+?0*[1-9]\d{0,8}\s*", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no count: write 1 or more")
    return int(text)


def step(text: str) -> int:
    """A step's number, 0 or more."""
    if not re.fullmatch(r"\s*\+?\d{1,18}\s*", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no step: write its number, 0 or more")
    return int(text)


def names(text: str) -> list[str]:
    """Names of variables, comma separated."""
    found = [name.strip() for name in text.split(",")]
    for name in found:
        if not name.isidentifier():
            raise argparse.ArgumentTypeError(f"{name!r} is no variable's name: write e.g. a,b")
    return found


def pulls(text: str) -> dict[str, bool]:
    """Names to bring back, `:all` for every rank's value: {name: from every rank}."""
    pairs = [part.strip().partition(":") for part in text.split(",")]
    for name, _, which in pairs:
        if not name.isidentifier() or which not in ("", "all"):
            raise argparse.ArgumentTypeError(f"{name + (':' + which if which else '')!r} can't be pulled: write a name, or name:all")
    return {name: which == "all" for name, _, which in pairs}


def collectors(text: str) -> frozenset[str]:
    """Collectors, comma separated."""
    found = frozenset(name.strip() for name in text.split(","))
    for name in sorted(found - set(COLLECTORS)):
        raise argparse.ArgumentTypeError(f"{name!r} is no collector{_nearest(name, COLLECTORS)}; choose from {', '.join(COLLECTORS)}")
    return found


def ranks(text: str) -> list[int]:
    """Ranks such as 0,2-3."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text!r} names no ranks: write e.g. 0,2-3")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def _profile(parser: Parser) -> None:
    add = parser.add_argument
    add("-n", "--ranks", dest="n", type=int, help="number of ranks (default: the GPUs, else 2)")
    add("--backend", choices=("gloo", "nccl"), help="what init_process_group() takes unless the cell says (default: by hardware)")
    add("--dir", help="the run directory itself; one that holds a run gets a new attempt")
    add("--name", help="name of the run; it goes to dtscope-runs/TIME-NAME beside the notebook")
    add("--push", type=names, default=[], metavar="A,B", help="notebook values that the ranks find under the same names")
    add("--pull", type=pulls, default={}, metavar="X,Y:all", help="values to bring back: rank 0's, or with :all a list by rank")
    add("--background", action="store_true", help="return at once; %%dtscope status and stop see to the run")
    add("--keep", action="store_true", help="ranks, their variables and process groups stay for the next cell")
    which = f"what to record, of {', '.join(COLLECTORS)} (default: all but the last two)"
    add("--collect", type=collectors, metavar="LIST", help=which)
    add("--budget", type=share, default=0.01, metavar="SHARE", help="share of step time that observing may cost (default: 1%%)")
    add(
        "--disk",
        type=disk,
        default=2 * 2**30,
        metavar="SIZE",
        help="what a rank may write (default: 2GiB); the finest rows are thinned first",
    )
    add("--timeout", type=seconds, metavar="S", help="end the run after so many seconds")
    add("--on-hang", choices=("report", "stop"), default="report", help="after a hang is seen and its stacks are saved (default: report)")
    add("--cluster", metavar="NAME", help="run on an ipyparallel cluster in place of local processes")


def _attach(parser: Parser) -> None:
    parser.add_argument("target", help="a run directory, a folder of runs (its newest), a pid, or tcp://host:port of a collector")
    parser.add_argument("--keys", metavar="FILE", help="for a collector: the notebook's keys (default: DTRAINSCOPE_KEYS)")
    parser.add_argument("--run", default="", metavar="NAME", help="for a collector: a run of it (default: its newest)")


def _open(parser: Parser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help=READABLE)


def _report(parser: Parser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"{READABLE} (default: the current run)")


def _show(parser: Parser) -> None:
    parser.add_argument("panel", choices=PANELS)
    parser.add_argument("--rank", type=int, help="at this rank")
    parser.add_argument("--step", type=step, help="at this step")


def _inject(parser: Parser) -> None:
    add = parser.add_argument
    add("fault", choices=(*FAULTS, "clear"), help="the fault, or clear to forget those given so far")
    add("--rank", type=ranks, metavar="R", help="rank or ranks that suffer it, e.g. 1 or 0,2-3 (default: 1)")
    add("--what", choices=("values", "operation", "shape"), help="kind of a desync (default: values)")
    add("--ms", type=milliseconds, help="its size in milliseconds a step, where it has one")
    add("--step", type=step, help="first step that suffers it")
    add("--steps", type=number, help="how many steps suffer it (default: all that follow)")


def _probe(parser: Parser) -> None:
    parser.add_argument("what", choices=("links",))
    parser.add_argument("-n", "--ranks", dest="n", type=int, help="number of ranks (default: as a profile)")


def _capture(parser: Parser) -> None:
    parser.add_argument("what", choices=CAPTURES)
    parser.add_argument("--ranks", type=ranks, metavar="R", help="e.g. 0,2-3 (default: all)")
    parser.add_argument("--steps", type=number, help="steps in a profile (default: 2)")


def _export(parser: Parser) -> None:
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("path", nargs="?", help="file or folder to write (default: in the run directory)")


def _doctor(parser: Parser) -> None:
    parser.add_argument("pid", type=int, nargs="?", help="a process that is to be observed")


def _help(parser: Parser) -> None:
    parser.add_argument("subcommand", nargs="?", help="one of the subcommands")


def _nothing(parser: Parser) -> None:
    del parser


_SUBCOMMANDS: dict[str, tuple[str, Callable[[Parser], None]]] = {
    "profile": ("run the cell on every rank, live panels under it, a report at its end", _profile),
    "attach": ("show live what a running job records", _attach),
    "open": ("read a run, traces or dumps; returns the Run", _open),
    "report": ("the report of the current run, or of what is read from PATH", _report),
    "show": ("show a panel of the current run", _show),
    "diagnose": ("findings of the current run, most costly first", _nothing),
    "inject": ("rehearse a fault in the next profile", _inject),
    "probe": ("measure pairs of ranks actively, at most 2 s", _probe),
    "capture": ("take a profile, stacks or flight recorder dumps of a live run now", _capture),
    "status": ("what runs, and where it records", _nothing),
    "stop": ("end the run that runs, or ranks that were kept", _nothing),
    "detach": ("end the live views of attached runs; the runs go on", _nothing),
    "runs": ("runs recorded beside this notebook", _nothing),
    "export": ("write the current run in another format", _export),
    "doctor": ("what can be observed here, and what would change it", _doctor),
    "help": ("this overview, or the help of one subcommand", _help),
}

SUBCOMMANDS = tuple(_SUBCOMMANDS)


def parser(name: str) -> argparse.ArgumentParser:
    """The parser of a subcommand; DtscopeError for an unknown one."""
    if name not in _SUBCOMMANDS:
        raise DtscopeError(f"unknown subcommand {name!r}{_nearest(name, SUBCOMMANDS)}; choose from {', '.join(SUBCOMMANDS)}")
    description, add = _SUBCOMMANDS[name]
    prefix = "%%dtscope" if name == "profile" else "%dtscope"
    made = Parser(prog=f"{prefix} {name}", description=description[0].upper() + description[1:] + ".", add_help=False, allow_abbrev=False)
    add(made)
    return made


def parse(line: str) -> tuple[str, argparse.Namespace]:
    """The subcommand of a line and its arguments; DtscopeError, one line, for what can't be understood."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise DtscopeError(f"%dtscope {line}: {str(error).lower()}: close the quotation") from error
    name, *rest = words or ["help"]
    return name, parser(name).parse_args(rest)


def overview() -> str:
    """The subcommands, a line each."""
    width = max(map(len, SUBCOMMANDS)) + 2
    lines = [f"  {name:<{width}}{description}" for name, (description, _) in _SUBCOMMANDS.items()]
    head = "%%dtscope profile runs a cell on several ranks; %dtscope SUBCOMMAND does the rest."
    return "\n".join([head, "", *lines, "", "%dtscope NAME? tells more."])


def complete(line: str) -> list[str]:
    """What may follow the text of a magic line up to the cursor."""
    words = line.split()[1:]
    current = "" if not line or line[-1].isspace() else words.pop() if words else ""
    if not words:
        return [name for name in SUBCOMMANDS if name.startswith(current)]
    if words[0] not in _SUBCOMMANDS:
        return []
    return sorted(text for text in _candidates(words) if text.startswith(current))


def _candidates(words: list[str]) -> Iterator[str]:
    actions = parser(words[0])._actions  # noqa: SLF001 # argparse has no public way to list them
    by_option = {option: action for action in actions for option in action.option_strings}
    last = by_option.get(words[-1])
    if last is not None and last.nargs != 0:
        yield from map(str, last.choices or ())
        return
    if words[0] == "help":
        yield from SUBCOMMANDS
    yield from (option for option in by_option if option.startswith("--") or option == "-n")
    for action in actions:
        if not action.option_strings:
            yield from map(str, action.choices or ())


def _nearest(word: str, words: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, words, 1)
    return f" (did you mean {near[0]}?)" if near else ""
