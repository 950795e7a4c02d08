"""Sweeps on a Dask cluster: an executor for `run_sweep` whose workers write their own chunks."""

import contextlib
import importlib.util
import logging
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor
from typing import Any

from critattn import provenance
from critattn.errors import ClusterError, SpecError

LOCAL = "local"
CONNECT_SECONDS = 10
KEPT = "what was finished is kept"
log = logging.getLogger(__name__)


@contextlib.contextmanager
def executor(address: str, *, workers: int | None = None) -> Iterator[Executor]:
    """Connect to a Dask cluster, or start one here, for as long as the context lasts.

    A worker that dies has its units run again on others; a unit during which several workers died in a row
    (`distributed.scheduler.allowed-failures`, by default 3, and once more) is given up. Workers, and the scheduler,
    need critattn in the same version, and the folder of the store under the same path.

    Args:
        address: of a scheduler, such as `tcp://10.0.0.5:8786`; or `local` for processes of one thread each here.
        workers: number of processes of a local cluster; by default one a core.

    Yields:
        An executor for `run_sweep(spec, store, executor=...)`. Leaving the context cancels what has not begun.

    Raises:
        SpecError: where dask.distributed is not installed.
        ClusterError: where there is no scheduler at the address, or the cluster fails while a sweep runs.
    """
    if importlib.util.find_spec("distributed") is None:
        raise SpecError("a cluster needs dask and distributed: pip install 'critattn[cluster]'")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_silence())
        client = stack.enter_context(_connection(address, workers or provenance.threads()))
        pool = client.get_executor(pure=False)
        stack.callback(pool.shutdown, wait=False)
        stack.enter_context(_translated(address))
        if not client.scheduler_info()["workers"]:
            log.warning("cluster %s has no workers yet: the sweep begins when one joins", address)
        yield pool


def dask_setup(worker: Any) -> None:
    """What Dask calls in each worker of a local cluster: Ctrl-C is for the process that started them."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _connection(address: str, workers: int) -> Iterator[Any]:
    import distributed

    with contextlib.ExitStack() as stack:
        try:
            target = stack.enter_context(_local_cluster(workers)) if address == LOCAL else _answering(address)
            client = distributed.Client(target, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ClusterError(
                f"cluster {address!r}: cannot be reached: {reason}; allowed: local, or the address of a Dask "
                "scheduler such as tcp://10.0.0.5:8786"
            ) from error
        yield stack.enter_context(client)


def _answering(address: str) -> str:
    """The address, once something answers there: a client of Dask that finds nobody leaves its event loop behind."""
    from distributed.comm.addressing import get_address_host_port

    host, port = get_address_host_port(address, strict=True)
    socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    return address


def _local_cluster(workers: int) -> Any:
    import distributed

    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        memory_limit=0,
        dashboard_address=":0",
        scheduler_kwargs={"dashboard": False},
        silence_logs=logging.CRITICAL,
        preload=[__name__],
    )


@contextlib.contextmanager
def _translated(address: str) -> Iterator[None]:
    from distributed.scheduler import KilledWorker

    try:
        yield
    except KilledWorker as error:
        times = error.allowed_failures + 1
        raise ClusterError(
            f"cluster {address!r}: a unit was given up: {times} workers died while computing it, as they do where "
            f"memory is short; {KEPT}"
        ) from error
    except CancelledError as error:
        raise ClusterError(f"cluster {address!r}: the connection to the scheduler was lost; {KEPT}") from error
    except ModuleNotFoundError as error:
        raise ClusterError(f"cluster {address!r}: the workers have no module {error.name!r}; {KEPT}") from error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Deaths of workers are handled here; what Dask and its event loop log about them is no news to a user."""
    import distributed

    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == distributed.__name__]
    loggers = [logging.getLogger(name) for name in (*names, "tornado.application")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
