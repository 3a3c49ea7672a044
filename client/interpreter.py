"""How to start an interpreter that finds this installation and nothing of its caller's.

The daemon outlives whoever starts it, so it must not depend on the caller's directory, PYTHON*
variables or user packages, unless this package itself comes from there:

    installed in          flags      PYTHONPATH
    site-packages, venv   -I         none
    the user's site       -E -P      none (the user's site stays on)
    anywhere else         -P [-s]    what this process imports from, without the standard places
"""

from __future__ import annotations

import os
import sys

import mcpstated
from mcpstated.protocol.errors import DaemonUnavailable


def interpreter_path() -> str:
    """Return the absolute path of a Python that can run this package.

    `sys.executable` is empty, or names another program, where Python is embedded; then the
    interpreter of the same installation is looked for.

    Raises:
        DaemonUnavailable: None was found.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [os.path.join(prefix, "bin", name) for prefix in (sys.prefix, sys.base_prefix)]
    if "python" in os.path.basename(sys.executable).lower() or "pypy" in os.path.basename(sys.executable):
        candidates.insert(0, sys.executable)
    for candidate in candidates:
        if os.path.isabs(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise DaemonUnavailable(
        "No Python interpreter was found to start the daemon with.", hint="Run `mcpstated daemon` by hand."
    )


def import_settings() -> tuple[list[str], str | None]:
    """Return the isolation flags, and the PYTHONPATH that is needed beside them (or None)."""
    package = os.path.abspath(next(iter(mcpstated.__path__)))
    parent = os.path.dirname(package)
    site = sys.modules.get("site")
    has_user_site = site is not None and site.ENABLE_USER_SITE and not os.environ.get("PYTHONUSERBASE")
    user_site = os.path.abspath(site.USER_SITE) if site is not None and has_user_site else None
    standard = [os.path.abspath(path) for path in (site.getsitepackages() if site is not None else [])]
    search = [os.path.abspath(entry) for entry in sys.path]
    is_hooked = os.path.basename(package) != "mcpstated" or parent not in search  # an editable installation
    if parent == user_site or (is_hooked and user_site in search):
        return ["-E", "-P"], None
    if is_hooked or parent in standard:
        return ["-I"], None
    library = os.path.abspath(os.path.dirname(os.__file__))
    inside = tuple(path + os.sep for path in (library, *standard, *([user_site] if user_site else [])))
    inherited = search if sys.flags.safe_path else search[1:]  # the first one is the script's own
    needed = [path for path in inherited if not (path + os.sep).startswith(inside) and os.path.isdir(path)]
    if parent not in needed:
        needed.insert(0, parent)
    return ["-P"] if user_site else ["-P", "-s"], os.pathsep.join(dict.fromkeys(needed))
