"""Imports every package and every module of the installed distribution; warnings are errors.

    python import_all.py TREE

Run it with the interpreter of an environment that holds nothing but a wheel: what the wheel forgot to
ship, or what it needs and does not require, shows here.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

from packages import packages


def main() -> None:
    """Import everything and say how much that was."""
    warnings.simplefilter("error")
    tree = Path(sys.argv[1]).resolve()
    names = set()
    for package in packages(tree):
        module = importlib.import_module(package)
        where = Path(str(module.__file__)).resolve()
        if where.is_relative_to(tree):
            sys.exit(f"{package} came from the checkout, not from the wheel: {where}")
        names.add(package)
        names.update(f"{package}.{found.name}" for found in pkgutil.iter_modules(module.__path__))
    names = {name for name in names if not name.endswith(".__main__")}  # importing those runs them
    for name in sorted(names):
        importlib.import_module(name)
    if not Path(str(importlib.import_module("mcpstated").__file__)).with_name("py.typed").is_file():
        sys.exit("the wheel has no py.typed")
    print(f"imported {len(names)} modules of {len(packages(tree))} packages")


if __name__ == "__main__":
    main()
