"""A patch costs what it changes: in bytes written, not measured in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.documents import Document
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller, CallToken

WAL_FRAME_BYTES = 4_096 + 24


@pytest.mark.requirement("P8")
async def test_an_append_to_a_large_document_writes_a_few_pages(path: Path, alice: Caller) -> None:
    """P8: 100 bytes into 900 KB, with its ledger row, cost the pages of five tables and indexes."""
    document: Document = {"l": ["x" * 1_000] * 900}
    wal = path.with_name(path.name + "-wal")
    async with open_engine(path) as running:
        store = running.store
        handle = (await store.mint(alice, kind="a", document=document)).info.handle
        origin = b"s" * 16
        pages = []
        for sequence in range(100):
            before = wal.stat().st_size
            caller = Caller(alice.user, alice.writer, CallToken(origin, sequence))
            await store.patch(caller, handle, [Append("l", "y" * 100)])
            store.note_settled(origin, sequence)
            pages.append((wal.stat().st_size - before) / WAL_FRAME_BYTES)
        assert max(pages) <= 12
        assert sorted(pages)[len(pages) // 2] <= 7
