"""Ring 1 needs no clock and no network; its property tests draw the same examples in every run.

`HYPOTHESIS_PROFILE=thorough` draws many more, and others each time.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("quick", derandomize=True, deadline=None, database=None, max_examples=100)
settings.register_profile("thorough", deadline=None, database=None, max_examples=3_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
