"""Running the checks of the room `proofs_check`, in this process or over two."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context

from critattn import rooms
from critattn.errors import DomainError, SpecError
from critattn.theorems.results import Grade
from critattn.theorems.theorem import Outcome, Theorem, examine

ROOM = "proofs_check"


def load_theorem(name: str) -> Theorem:
    """The theorem of a file of the room.

    Raises:
        SpecError: for an unknown name, with a suggestion; for a file without THEOREM or with one of another name.
    """
    found = getattr(rooms.load(ROOM, name), "THEOREM", None)
    if not isinstance(found, Theorem):
        raise SpecError(f"{rooms.path(ROOM, name)}: defines no THEOREM = Theorem(...)")
    if found.name != name:
        raise SpecError(f"{rooms.path(ROOM, name)}: its theorem is called {found.name!r}; allowed: {name!r}")
    return found


def chosen(names: Sequence[str] = (), *, quick: bool = False) -> tuple[str, ...]:
    """Names of the theorems to check: those given, else all; with `quick` the identities among them.

    Raises:
        SpecError: for an unknown name, with a suggestion.
    """
    for name in names:
        rooms.path(ROOM, name)
    wanted = tuple(dict.fromkeys(names)) or rooms.names(ROOM)
    if not quick:
        return wanted
    return tuple(name for name in wanted if load_theorem(name).grade is Grade.IDENTITY)


def examine_named(name: str) -> Outcome:
    """Load a theorem and check it."""
    return examine(load_theorem(name))


def run(
    names: Sequence[str], *, workers: int = 1, progress: Callable[[Outcome], None] = lambda outcome: None
) -> tuple[Outcome, ...]:
    """Check theorems and their mutants.

    Args:
        names: of files of the room.
        workers: processes; 1 stays in this one.
        progress: called with each outcome as it comes.

    Returns:
        The outcomes in the order of the names.

    Raises:
        SpecError: for an unknown name or a file that holds no theorem.
        DomainError: for fewer than one worker.
    """
    if workers < 1:
        raise DomainError.of("workers", workers, "at least 1")
    found = {}
    for outcome in _outcomes(names, min(workers, len(names))):
        found[outcome.name] = outcome
        progress(outcome)
    return tuple(found[name] for name in names)


def _outcomes(names: Sequence[str], workers: int) -> Iterator[Outcome]:
    if workers <= 1:
        yield from map(examine_named, names)
        return
    # spawned: a forked process would share threads of the libraries loaded so far
    others, done = set(active_children()), False
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        with _without_interrupts():
            waiting = [pool.submit(examine_named, name) for name in names]
        for future in as_completed(waiting):
            yield future.result()
        done = True
    finally:
        if not done:
            # checks in hand may take half a minute and leave nothing behind
            for process in set(active_children()) - others:
                process.terminate()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started here inherit that Ctrl-C is for this one, which stops them: none writes a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
