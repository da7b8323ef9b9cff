# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What each subcommand of %dtscope does, once it is parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtscope_jupyter import arguments, asking, attaching, overviews, places, probe, stage
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import Cell
from dtscope_jupyter.session import Request

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from dtscope_jupyter.session import Session


def request(options: Namespace) -> Request:
    """The options of profile as a request."""
    return Request(
        world_size=options.n,
        backend=options.backend,
        directory=options.dir,
        name=options.name,
        pushed=tuple(options.push),
        pulled=options.pull,
        background=options.background,
        keep=options.keep,
        collect=options.collect,
        budget=options.budget,
        disk=options.disk,
        timeout=options.timeout,
        on_hang=options.on_hang,
        cluster=options.cluster,
    )


def run(name: str, options: Namespace, session: Session) -> Any:
    """Does a subcommand; what it returns is the cell's value. DtscopeError, one line, where it can't."""
    return _COMMANDS[name](options, session)


def _open(options: Namespace, session: Session) -> Any:
    from dtscope_jupyter.run import open as open_run

    session.run = open_run([path for given in options.paths for path in places.expand(given)])
    if session.run.attempt is None:
        notes = session.run.table("notes")
        for text in notes.loc[(notes["kind"] == "warning") & (notes["rank"] == -1), "text"]:
            stage.say(text)
    return session.run


def _report(options: Namespace, session: Session) -> Any:
    run = _open(options, session) if options.paths else session.run
    return run.report()


def _show(options: Namespace, session: Session) -> Any:
    shown = session.run.show(options.panel, rank=options.rank, step=options.step)
    if not stage.has_widgets():
        stage.say("panels need a notebook; %dtscope diagnose tells the findings here, %dtscope export html writes the panels as a page")
    return shown


def _diagnose(_: Namespace, session: Session) -> Any:
    return session.run.diagnose()


def _stop(_: Namespace, session: Session) -> None:
    stage.write(f"dtscope: {session.stop()}\n")


def _status(_: Namespace, session: Session) -> None:
    stage.write("\n".join(overviews.status(session)) + "\n")


def _runs(_: Namespace, __: Session) -> Any:
    return overviews.runs()


def _inject(options: Namespace, session: Session) -> None:
    if options.fault == "clear":
        session.faults.clear()
        return
    chosen = {name: getattr(options, name) for name in ("what", "ms", "step", "steps") if getattr(options, name) is not None}
    session.faults += [{"fault": options.fault, "rank": rank, **chosen} for rank in options.rank or [1]]
    stage.write(f"dtscope: the next profile rehearses: {overviews.faults(session.faults)} (%dtscope inject clear forgets it)\n")


def _export(options: Namespace, session: Session) -> None:
    if options.path == "":
        raise DtscopeError("the path is empty: name a file or folder, or leave it out")
    written = session.run.export(options.format, options.path)
    stage.write(f"{places.shown(written)}\n")


def _attach(options: Namespace, session: Session) -> None:
    attaching.attach(options.target, session, options.keys, options.run)


def _detach(_: Namespace, session: Session) -> None:
    count = attaching.detach(session)
    ended = f"{count} live view{'s' if count != 1 else ''} ended; what they showed goes on"
    stage.write(f"dtscope: {ended if count else 'no run is attached to, so there is no live view to end'}\n")


def _capture(options: Namespace, session: Session) -> None:
    stage.write("\n".join(asking.capture(session.live_attempt, options.what, options.ranks, options.steps)) + "\n")


def _probe(options: Namespace, session: Session) -> Any:
    if (options.n or 2) == 1:
        raise DtscopeError("-n 1: a link has two ends: probe 2 ranks or more")
    rows = session.run_unobserved(Cell(probe.PROGRAM, "<probe links>"), "dtscope_links", options.n)
    return probe.Links(tuple(rows))


def _doctor(options: Namespace, _: Session) -> None:
    from dtscope_jupyter import doctor

    stage.write(doctor.text(doctor.examine(options.pid)) + "\n")


def _help(options: Namespace, _: Session) -> None:
    text = arguments.parser(options.subcommand).format_help() if options.subcommand else arguments.overview()
    stage.write(text.rstrip() + "\n")


_COMMANDS: dict[str, Callable[[Namespace, Session], Any]] = {
    "open": _open,
    "report": _report,
    "show": _show,
    "diagnose": _diagnose,
    "stop": _stop,
    "status": _status,
    "runs": _runs,
    "inject": _inject,
    "capture": _capture,
    "probe": _probe,
    "doctor": _doctor,
    "export": _export,
    "attach": _attach,
    "detach": _detach,
    "help": _help,
}
