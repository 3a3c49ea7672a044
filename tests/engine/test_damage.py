"""One handle whose stored log does not fit together is an error for that handle, not for the store."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mcpstated.daemon.testing import open_engine
from mcpstated.protocol.errors import BackendError
from mcpstated.protocol.patches import Append
from mcpstated.protocol.store import Caller


@pytest.mark.requirement("P5", "P7")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE changes SET body = '{' WHERE version = 2",
        'UPDATE changes SET body = \'{"ops":[{"op":"append","path":"no","value":1}]}\' WHERE version = 2',
        'UPDATE changes SET body = \'{"ops":[{"op":"explode"}]}\' WHERE version = 2',
        "UPDATE changes SET body = '[]' WHERE version = 2",
        "UPDATE checkpoints SET document = 'secret'",
        "DELETE FROM checkpoints",
    ],
)
async def test_a_handle_that_cannot_be_rebuilt_stands_alone(
    path: Path, alice: Caller, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P7: clear errors, no content in message or log, and everything else goes on."""
    async with open_engine(path) as running:
        broken = (await running.store.mint(alice, kind="a", document={"secret": ["secret"]})).info.handle
        await running.store.patch(alice, broken, [Append("secret", "secret")])
    db = apsw.Connection(str(path))
    db.execute(statement)
    db.close()
    async with open_engine(path) as running:
        store = running.store
        sound = (await store.mint(alice, kind="a", document={"l": []})).info.handle
        for call in (
            lambda: store.load(alice, broken),
            lambda: store.patch(alice, broken, [Append("secret", 1)]),
            lambda: store.save(alice, broken, document={}, expect_version=2),
        ):
            with pytest.raises(BackendError) as caught:
                await call()
            assert "secret" not in caught.value.message
        assert "secret" not in caplog.text
        assert "stored handle was unreadable" in caplog.text
        assert (await store.patch(alice, sound, [Append("l", 1)])).info.version == 2
        assert (await store.list(alice)).total == 2
        await store.sweep()
