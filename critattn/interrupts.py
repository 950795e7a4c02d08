"""Ctrl-C during long work: the first one lets the unit in hand be finished and kept."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

log = logging.getLogger(__name__)


@contextlib.contextmanager
def patience() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a flag, so that the unit in hand is finished; the second one acts at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(*_: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)
        log.warning("Interrupted: finishing the unit in hand (Ctrl-C again to stop at once)")

    signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
