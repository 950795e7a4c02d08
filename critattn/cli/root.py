"""The outermost group: every exception becomes one line on stderr and an exit code."""

import _thread
import atexit
import contextlib
import errno
import io
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import click

from critattn.cli.common import Group, Settings
from critattn.errors import ClusterError, CritattnError, StoreError

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
DISK_FAILS = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
log = logging.getLogger("critattn")


class Root(Group):
    """The outermost group: it turns every exception into one line on stderr and an exit code."""

    def main(self, *args: Any, **how: Any) -> Any:
        """Run the command line and exit with 0, 1, 2 or 130; takes what `click.Command.main` takes."""
        own = not args and how.get("args") is None
        settings = Settings(debug="--debug" in (how.get("args") or sys.argv[1:]))
        how = {"prog_name": "critattn", **how, "standalone_mode": False, "obj": settings}
        _replace_what_cannot_be_shown()
        with warnings.catch_warnings(), _logging(settings), _kept_interrupts(), _Guard(settings) as guard:
            warnings.showwarning = _shown_by(settings)
            guard.code = super().main(*args, **how) or DONE
        code = _after_flush(guard.code, settings)
        if own and code == INTERRUPTED and "jax" in sys.modules:
            # Ctrl-C ends the wait for a compilation, not the thread that compiles: what jax lets go of at the end of
            # the process, before anything else, that thread uses still, and all ends in a segmentation fault
            atexit.register(os._exit, code)
        sys.exit(code)


def _after_flush(code: Any, settings: Settings) -> Any:
    """The exit code once stdout has been written out; a disk that is full then is reported here, and only once."""
    if sys.stdout is None:
        return code
    try:
        sys.stdout.flush()
    except OSError as error:
        # the interpreter flushes what is left once more at its end: let it go nowhere
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return report(error, settings) if code == DONE else code
    return code


def _replace_what_cannot_be_shown() -> None:
    """Let a terminal without Unicode show question marks in place of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def _kept_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait while a module is imported, and repeat one that struck in a callback, where Python drops it."""
    hook, handler = sys.unraisablehook, signal.getsignal(signal.SIGINT)
    ours = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()

    def repeat(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _interrupt_again()
        else:
            hook(unraisable)

    sys.unraisablehook = repeat
    if ours:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if ours:
            signal.signal(signal.SIGINT, handler)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or later where a module is half imported: compiled ones abort the process then."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return _interrupt_again()
        frame = frame.f_back
    raise KeyboardInterrupt


def _interrupt_again() -> None:
    threading.Timer(0.05, _thread.interrupt_main).start()


class _Guard:
    """Ends any exception that is an `Exception`, reports it and keeps the exit code."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.code: Any = DONE

    def __enter__(self) -> "_Guard":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Exception):
            self.code = report(error, self.settings)
        return isinstance(error, Exception)


def report(error: BaseException, settings: Settings) -> int:
    """Write the one line of an error to stderr and return the exit code."""
    if settings.debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return WRONG_INPUT
    line, code = _diagnosis(error, settings)
    click.echo(line, err=True)
    return code


def _diagnosis(error: BaseException, settings: Settings) -> tuple[str, int]:
    after = FAILED if settings.begun else WRONG_INPUT
    match error:
        case click.Abort():
            return f"Interrupted. To go on: {settings.go_on}", INTERRUPTED
        case click.ClickException():
            return _line(error.format_message()), error.exit_code
        case StoreError() | ClusterError():
            return _line(str(error)), after
        case CritattnError():
            return _line(str(error)), WRONG_INPUT
        case OSError():
            return _line(_os_message(error)), FAILED if error.errno in DISK_FAILS else after
        case MemoryError():
            return _line("not enough memory; take a smaller n, or --sample-rows"), FAILED
    return _line(f"unexpected {type(error).__name__}: {error} (--debug shows the traceback)"), FAILED


def _line(message: str) -> str:
    return f"Error: {' '.join(message.split())}"


def _os_message(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _shown_by(settings: Settings) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if not settings.quiet:
            click.echo(f"Warning: {' '.join(str(message).split())}", err=True)

    return show


class _StderrHandler(logging.Handler):
    """Writes the package's log through click at the level of -v, wherever on the line that stood."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings

    def emit(self, record: logging.LogRecord) -> None:
        level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(self.settings.verbose, 2)]
        if record.levelno >= (logging.ERROR if self.settings.quiet else level):
            click.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)


@contextlib.contextmanager
def _logging(settings: Settings) -> Iterator[None]:
    handler = _StderrHandler(settings)
    # a library that logs on the root logger gives it a handler, which would say everything once more
    propagates, log.propagate = log.propagate, False
    log.setLevel(logging.DEBUG)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
