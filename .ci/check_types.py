"""Type-checks the installed distribution, after a canary has shown that the checker sees each package.

    python check_types.py TREE

The canary (tests/canary/wrong_type.py) holds one deliberate error. It is laid into every installed
package; mypy must complain about each copy. Then the copies go and nothing may be left to complain of.
Only an installed wheel is worth checking: import hooks of editable installs are invisible to mypy, which
would take every import for Any and find nothing.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packages import packages

CANARY = "canary_of_the_type_check"


def mypy(tree: Path, cache: str) -> subprocess.CompletedProcess[str]:
    """Run mypy on the installed packages, from a directory where none of their folders lies."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(tree / "pyproject.toml")]
    command += ["--cache-dir", cache, "-p", "mcpstated"]
    return subprocess.run(command, cwd=cache, capture_output=True, text=True, check=False)


def folder_of(package: str) -> Path:
    """Return the installed folder of a package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None, f"{package} has no __init__"
    return Path(spec.origin).parent


def main() -> None:
    """Check, and exit with what mypy printed if something is wrong."""
    tree = Path(sys.argv[1]).resolve()
    copies = {package: folder_of(package) / f"{CANARY}.py" for package in packages(tree)}
    with tempfile.TemporaryDirectory() as cache:
        try:
            for copy in copies.values():
                shutil.copyfile(tree / "tests" / "canary" / "wrong_type.py", copy)
            complaints = mypy(tree, cache).stdout.splitlines()
        finally:
            for copy in copies.values():
                copy.unlink(missing_ok=True)
        marks = {package: f"{package.replace('.', '/')}/{CANARY}.py" for package in copies}
        unseen = [package for package, mark in marks.items() if not any(mark in line for line in complaints)]
        if unseen:
            sys.exit("\n".join([*complaints, f"mypy does not see these packages: {', '.join(unseen)}"]))
        checked = mypy(tree, cache)
    print(checked.stdout.strip())
    if checked.returncode != 0:
        sys.exit(f"{checked.stderr}types are wrong")
    print(f"the canary was seen in all {len(copies)} packages")


if __name__ == "__main__":
    main()
