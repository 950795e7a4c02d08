"""Where a result came from: versions, git state, machine, devices and threads."""

import functools
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("critattn", "jax", "jaxlib", "numpy", "scipy", "xarray", "zarr")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide about bits; those not installed are left out."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def threads() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def devices() -> list[str]:
    """The devices that JAX sees, such as `cpu`; starts JAX's backend."""
    import jax

    return [device.device_kind for device in jax.devices()]


def git_state() -> dict[str, Any] | None:
    """Commit and whether files differ from it, where the package runs from a checkout; else None."""
    checkout = Path(__file__).parents[1]
    if not (checkout / ".git").exists():
        return None
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None else {"commit": commit, "changed": bool(changed)}


def environment(*, with_devices: bool = True) -> dict[str, Any]:
    """All of the above in one JSON-ready table."""
    return {
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": threads(),
        "devices": devices() if with_devices else [],
        "git": git_state(),
        "executable": Path(sys.executable).name,
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
