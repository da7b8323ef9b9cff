# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The dtscope command: report, collect, keys, doctor."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import __version__
from dtscope_jupyter.arguments import READABLE, Parser, disk
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

_LINES = 20
_REPORT = (
    "Exits with 0 whatever was found, with 2 where nothing could be read; what could not be read is told on stderr. The JSON is "
    "described by docs/report.schema.json; to fail a test on findings use dts.expect(dts.open(PATH)).no_findings()."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand: exit 0, or 2 with one line on stderr where it can't be done, behind one for each file that is why."""
    try:
        options = parser().parse_args(arguments)
    except DtscopeError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        options.run(options)
    except DtscopeError as error:
        for line in (*getattr(error, "__notes__", ()), error):
            print(f"dtscope: {line}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has seen enough
    return 0


def _report(options: Namespace) -> None:
    from dtscope_jupyter.run import open as open_run

    run = open_run(options.paths)
    _unusable(run.tables["notes"].to_pylist())
    print(json.dumps(run.report_json(), indent=1, allow_nan=False) if options.json else run.report())


def _unusable(notes: Sequence[dict[str, Any]]) -> None:
    """A line on stderr for each trace or dump that is damaged or could not be read, the first few of many."""
    from dtscope_jupyter.ingest import files

    told = [note for note in notes if note["kind"] in {"unreadable", "damaged"} and not files.unrelated(note["text"])]
    for note in told[:_LINES]:
        print(f"dtscope: {note['name']}: {note['text']}", file=sys.stderr)
    if len(told) > _LINES:
        print(f"dtscope: and {len(told) - _LINES} more; the table notes has them all", file=sys.stderr)


def _collect(options: Namespace) -> None:
    from dtscope_jupyter import transport

    def began(endpoint: str) -> None:
        print(f"listening at {endpoint}, writing to {options.dir}", flush=True)

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    transport.collect(options.listen, options.dir, options.keys, options.disk, options.prometheus, began=began)


def _keys(options: Namespace) -> None:
    from dtscope_jupyter import transport

    for path in transport.make_keys(options.dir):
        print(path)


def _doctor(options: Namespace) -> None:
    from dtscope_jupyter import doctor

    checks = doctor.examine(options.pid)
    print(json.dumps([asdict(check) for check in checks], indent=1) if options.json else doctor.text(checks))


class _Parser(Parser):
    """As that of the magics; a subcommand's tells what it doesn't know by itself, as it knows its options."""

    @property
    def _help(self) -> str:
        return f"{self.prog} --help"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse, but an unknown option is told before what is missing: it may be what was meant."""
        words = list(sys.argv[1:] if args is None else args)
        for word in takewhile(lambda word: word.startswith("-"), words) if self._subparsers else words:
            name = word.partition("=")[0]
            if name.startswith("--") and name != "--" and " " not in word and name not in self._option_string_actions:
                self.error(f"unrecognized arguments: {name}")
        known, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


def parser() -> ArgumentParser:
    """The command's parser; help and pages derive from it."""
    made = _Parser(prog="dtscope", allow_abbrev=False, description="See distributed PyTorch training: reports, the collector, its keys.")
    made.add_argument("--version", action="version", version=__version__)
    commands = made.add_subparsers(required=True, metavar="COMMAND")

    report = commands.add_parser("report", help="findings of a run, or of traces and dumps", description=_REPORT)
    report.add_argument("paths", nargs="+", metavar="PATH", help=READABLE)
    report.add_argument("--json", action="store_true", help="as JSON")
    report.set_defaults(run=_report)

    collect = commands.add_parser("collect", help="receive what ranks on other hosts record")
    collect.add_argument("--listen", required=True, metavar="tcp://HOST:PORT", help="where ranks and notebooks connect to")
    collect.add_argument("--dir", required=True, type=Path, help="folder for the runs")
    collect.add_argument("--keys", type=Path, help="what dtscope keys made (default: $DTRAINSCOPE_KEYS, DIR/keys or DIR)")
    collect.add_argument("--disk", type=disk, default=2 * 2**30, metavar="SIZE", help="what a rank may have (default: 2GiB)")
    collect.add_argument("--prometheus", metavar="HOST:PORT", help="serve metrics there")
    collect.set_defaults(run=_collect)

    keys = commands.add_parser("keys", help="make the keys of a collector, its ranks and its notebooks")
    keys.add_argument("dir", type=Path)
    keys.set_defaults(run=_keys)

    doctor = commands.add_parser("doctor", help="what can be observed here, or of a process, and what would change it")
    doctor.add_argument("pid", type=int, nargs="?")
    doctor.add_argument("--json", action="store_true", help="as JSON: a list of {what, ok, reason, change}")
    doctor.set_defaults(run=_doctor)
    return made


if __name__ == "__main__":
    sys.exit(main())
