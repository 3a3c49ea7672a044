"""`python -m mcpstated.cli` is `mcpstated`."""

from __future__ import annotations

import sys

from mcpstated.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
