# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a notebook session holds: the warm process, the run that runs, the current Run, and what waits for the next one."""

from __future__ import annotations

import atexit
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import cells, launch, places, stage
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import environment, values
from dtscope_jupyter.profiling import Profile
from dtscope_jupyter.view.text import count

if TYPE_CHECKING:
    from dtscope_jupyter.attaching import Attachment
    from dtscope_jupyter.launch.world import World
    from dtscope_jupyter.run import Run
    from dtscope_jupyter.rundir import Attempt

_CLOSE_S = 3.0
_PROBE_S = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a profile was asked for; `world_size` None leaves it to the hardware, or to ranks that were kept."""

    world_size: int | None = None
    backend: str | None = None
    directory: str | None = None
    name: str | None = None
    pushed: tuple[str, ...] = ()
    pulled: dict[str, bool] | None = None
    background: bool = False
    keep: bool = False
    collect: frozenset[str] | None = None
    budget: float = 0.01
    disk: int = 2 * 2**30
    timeout: float | None = None
    on_hang: str = "report"
    cluster: str | None = None


class Session:
    """One a process, `current()` gives it; every method is for the main thread."""

    def __init__(self) -> None:
        self.warm = launch.Warm()
        self.profile: Profile | None = None
        self.kept: World | None = None
        self.faults: list[dict[str, Any]] = []
        self.attached: dict[Path, Attachment] = {}
        self._run: Run | None = None

    def prepare(self) -> None:
        """Starts the warm process, which goes on importing by itself; trouble is told when ranks are wanted."""
        try:
            self.warm.start()
        except DtscopeError:
            return  # the session was closed meanwhile
        except OSError as error:
            stage.say(f"the warm process could not be started ({error}); the next profile tries again")

    @property
    def running(self) -> Profile | None:
        """The profile whose ranks run now."""
        return self.profile if self.profile is not None and not self.profile.job.poll() else None

    @property
    def has_run(self) -> bool:
        """Whether there is a current run."""
        return self._run is not None

    @property
    def run(self) -> Run:
        """The current run: the newest that was recorded or opened here, else what runs in the background, as far as it has come."""
        if self._run is None and self.running is not None:
            from dtscope_jupyter.run import Run

            return Run.of_directory(self.running.attempt.run, self.running.attempt.number)
        if self._run is None:
            raise DtscopeError("there is no current run: record one with %%dtscope profile, or %dtscope open PATH")
        self._run.refresh()
        return self._run

    @run.setter
    def run(self, run: Run) -> None:
        self._run = run

    def start(self, body: launch.Cell | values.Packed, request: Request, namespace: dict[str, Any]) -> Profile:
        """Checks a request and starts its ranks; DtscopeError, one line, where it can't be met. Returns at once."""
        self._refuse()
        pushed = values.collect(list(request.pushed), namespace)
        if request.cluster is not None:
            self.profile = self._start_on_cluster(body, request, pushed)
        else:
            world_size, backend = self._size(request)
            self._check_faults(world_size)
            program = _program(body, pushed, request, world_size)
            attempt = places.create(request.directory, request.name, _meta(world_size, backend))
            world, self.kept = self.kept, None
            self.profile = Profile(program, request, attempt, self, world)
        self.faults = []
        return self.profile

    def _start_on_cluster(self, body: launch.Cell | values.Packed, request: Request, pushed: dict[str, Any]) -> Profile:
        from dtscope_jupyter import cluster

        assert request.cluster is not None
        if request.keep:
            raise DtscopeError("--keep is for ranks of this host: on a cluster every profile starts ranks of its own; leave it out")
        engines = cluster.connect(request.cluster, request.world_size)
        try:
            size, backend = len(engines.seats), engines.backend(request.backend)
            self._check_faults(size)
            program = _program(body, pushed, request, size)
            attempt = places.create(request.directory, request.name, _meta(size, backend) | {"cluster": request.cluster})
            return Profile(program, request, attempt, self, cluster.ClusterWorld(engines, attempt, backend))
        except BaseException:
            engines.close()
            raise

    def run_unobserved(self, body: launch.Cell, name: str, world_size: int | None) -> Any:
        """Runs a short program of ours on the ranks that were kept, else on new ones, and returns rank 0's value of a name."""
        self._refuse()
        request = Request(world_size=world_size, pulled={name: False}, keep=self.kept is not None)
        size, _ = self._size(request)
        with tempfile.TemporaryDirectory(prefix="dtscope-") as folder:
            logs = tuple(str(Path(folder, f"{rank}.txt")) for rank in range(size))
            options = launch.Options(logs, (None,) * size, "probe", timeout=_PROBE_S, keep=request.keep)
            job = launch.start(_program(body, {}, request, size), options, self.warm, self.kept)
            while not _waited(job):
                pass
        if job.failure is not None:
            raise launch.RankError(job.failure)
        return job.results()[name]

    @property
    def live_attempt(self) -> Attempt:
        """What %dtscope capture means: the profile that runs, else what was attached last, else the current run."""
        if self.running is not None:
            return self.running.attempt
        if self.attached:
            return list(self.attached.values())[-1].attempt
        if self.run.attempt is None:
            raise DtscopeError(f"{self.run.name} was read from files of another tool: nothing of it is live")
        return self.run.attempt

    def stop(self) -> str:
        """Ends the profile that runs, or the ranks that were kept; says which."""
        running = self.running
        if running is not None:
            return running.stop(_CLOSE_S)
        if self.kept is not None:
            ended = count(self.kept.size, "kept rank")
            self.kept.dismiss()
            self.kept = None
            return f"{ended} ended"
        raise DtscopeError("nothing to stop: no profile runs and no ranks were kept")

    def close(self) -> None:
        """Ends every process of ours; ranks have a moment to write what they hold."""
        running = self.running
        if running is not None:
            running.job.stop()
            running.job.wait(_CLOSE_S)
        self.warm.stop()
        for attachment in self.attached.values():
            attachment.end("the session was closed")
        self.attached, self.kept = {}, None

    def _refuse(self) -> None:
        other = environment.other_job()
        if other:
            raise DtscopeError(other)
        environment.check_variables()
        if self.running is not None:
            where = places.shown(self.running.attempt.path)
            raise DtscopeError(f"a profile runs already ({where}): wait for its end, or %dtscope stop")
        if self.kept is not None and self.kept.gone():
            self.kept.close()
            self.kept = None
            stage.say("the kept ranks have ended since: new ones are started")

    def _check_faults(self, world_size: int) -> None:
        """A fault of a rank that isn't there would be rehearsed by nobody, and nobody told."""
        beyond = [fault for fault in self.faults if fault["rank"] >= world_size]
        if beyond:
            told = f"inject {beyond[0]['fault']} --rank {beyond[0]['rank']}"
            raise DtscopeError(f"{told}: the profile has {count(world_size, 'rank')}, from 0: raise -n, or %dtscope inject clear")

    def _size(self, request: Request) -> tuple[int, str]:
        gpus = environment.gpus() if request.backend != "gloo" else 0
        backend = request.backend or ("nccl" if gpus else "gloo")
        if self.kept is not None:
            if request.world_size not in (None, self.kept.size):
                kept = f"{count(self.kept.size, 'rank')} {'was' if self.kept.size == 1 else 'were'} kept for this cell"
                raise DtscopeError(f"-n {request.world_size}: {kept}: leave -n out, or %dtscope stop first")
            return self.kept.size, backend
        world_size = (gpus or 2) if request.world_size is None else request.world_size
        environment.check_world_size(world_size, backend)
        return world_size, backend


def _meta(world_size: int, backend: str) -> dict[str, Any]:
    launcher = "notebook" if stage.shell() else "python"
    return {"world_size": world_size, "backend": backend, "created_ns": time.time_ns(), "launcher": launcher}


def _program(body: launch.Cell | values.Packed, pushed: dict[str, Any], request: Request, world_size: int) -> launch.Program:
    packed = values.pack_named(pushed) if pushed else values.Packed(b"", frozenset())
    if warning := values.size_warning(pushed, len(packed.data), world_size):
        stage.say(warning)
    own = frozenset({body.filename}) if isinstance(body, launch.Cell) else body.filenames
    return launch.Program(
        launch.Call(body.data) if isinstance(body, values.Packed) else body,
        packed.data or None,
        request.pulled or {},
        cells.sources(own | packed.filenames),
    )


def _waited(job: launch.Job) -> bool:
    try:
        return job.wait(_PROBE_S)
    except KeyboardInterrupt:
        job.interrupt()
        return False


_current: Session | None = None
_making = threading.Lock()


def current() -> Session:
    """The session of this process, made when first asked for."""
    global _current  # noqa: PLW0603 # one a process
    with _making:
        if _current is None:
            _current = Session()
            atexit.register(_current.close)
        return _current


def close() -> None:
    """Ends the session, if there is one; the next `current` makes another."""
    global _current  # noqa: PLW0603 # one a process
    if _current is not None:
        atexit.unregister(_current.close)
        _current.close()
        _current = None
