"""The operations that clients of the wire may ask for: one verb, one method, one word in the docs.

A request names an operation and gives its parameters as a map; documents and operations of a patch
come as JSON text. Unknown operations and unknown parameters are refused by name. Sessions above,
the store below.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import trio

from mcpstated.daemon.weights import LARGE_BYTES
from mcpstated.protocol import documents
from mcpstated.protocol.errors import InvalidInput, McpStateError
from mcpstated.protocol.handle_record import LEVELS_AROUND, HandleRecord, record_from_json
from mcpstated.protocol.messages import STOPPING, UPGRADING
from mcpstated.protocol.patches import operations_from_wire
from mcpstated.protocol.pointer import resolve
from mcpstated.protocol.request_keys import request_key
from mcpstated.protocol.store import KEEP, Caller, Receipt, Store, info_to_wire

if TYPE_CHECKING:
    from mcpstated.daemon.feed import Feed
    from mcpstated.protocol.limits import Limits

REQUEST_KEY = "request_key"
WATCH = "watch"
"""The one operation that answers with a stream of events; the session runs it."""

Parameters = dict[str, Any]
Result = dict[str, object]


class Dispatch:
    """Performs operations on a store for the sessions of one daemon.

    Args:
        store: The engine.
        feed: Where changes are published after their commit.
        limits: The daemon's bounds.
        host: The name of this machine, for writer labels.
        status: Returns what `status` answers.
        stop: Begins the shutdown for a reason of a goodbye.
        now_unix: The wall clock in seconds.
        pid: This process.
    """

    def __init__(
        self,
        store: Store,
        *,
        feed: Feed,
        limits: Limits,
        host: str,
        status: Callable[[], Awaitable[Result]],
        stop: Callable[[str], None],
        now_unix: Callable[[], float],
        pid: int,
    ) -> None:
        self._store = store
        self._feed = feed
        self._limits = limits
        self._host = host
        self._status_now = status
        self._stop_for = stop
        self._pid = pid
        self.now_unix = now_unix
        self._operations: dict[
            str, tuple[Callable[[Parameters, Caller], Awaitable[Result]], frozenset[str]]
        ] = {
            "status": (self._status, frozenset()),
            "list": (self._list, frozenset({"kind", "query", "cursor", "limit"})),
            "load": (self._load, frozenset({"handle", "path", "version"})),
            "mint": (self._mint, frozenset({"kind", "state", "ttl_days", "title", REQUEST_KEY})),
            "save": (
                self._save,
                frozenset({"handle", "state", "expect_version", "ttl_days", "title", REQUEST_KEY}),
            ),
            "patch": (self._patch, frozenset({"handle", "ops", REQUEST_KEY})),
            "touch": (self._touch, frozenset({"handle", "ttl_days", REQUEST_KEY})),
            "delete": (self._delete, frozenset({"handle", REQUEST_KEY})),
            "import": (self._import, frozenset({"record"})),
            "trash": (self._trash, frozenset()),
            "undelete": (self._undelete, frozenset({"handle", REQUEST_KEY})),
            "empty_trash": (self._empty_trash, frozenset({"handle"})),
            "stop": (self._stop, frozenset({"reason"})),
        }

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Names of what may be asked for."""
        return (*self._operations, WATCH)

    def writer_for(self, role: str) -> str:
        """Return the writer label of a client that gave none."""
        return f"{self._host}/{role}"

    async def perform(self, operation: str, parameters: Parameters, caller: Caller) -> Result:
        """Perform one operation and return its result.

        Raises:
            McpStateError: What the store or the parameters were refused for.
        """
        entry = self._operations.get(operation)
        if entry is None:
            raise InvalidInput(
                f"The operation {operation[:40]!r} is not known to this daemon.", field="operation"
            )
        perform, allowed = entry
        _refuse_unknown(parameters, allowed)
        if (key := parameters.get(REQUEST_KEY)) is not None:
            asked = {name: value for name, value in parameters.items() if name != REQUEST_KEY}
            caller = replace(caller, request=request_key(key, operation, asked, self._limits))
        return await perform(parameters, caller)

    @contextmanager
    def watch(self, parameters: Parameters, caller: Caller) -> Iterator[AsyncIterator[tuple[int, Result]]]:
        """Give the changes of the caller's user as they are committed, from now on."""
        _refuse_unknown(parameters, frozenset())
        with self._feed.subscribe(user=caller.user) as events:

            async def stream() -> AsyncIterator[tuple[int, Result]]:
                async for event in events:
                    if event.space == caller.space:
                        yield (
                            event.revision,
                            {
                                "handle": event.handle,
                                "version": event.version,
                                "action": event.action,
                                "writer": event.writer,
                                "at": event.at,
                            },
                        )

            yield stream()

    async def _status(self, _parameters: Parameters, _caller: Caller) -> Result:
        return await self._status_now()

    async def _list(self, parameters: Parameters, caller: Caller) -> Result:
        page = await self._store.list(
            caller,
            kind=_text(parameters, "kind"),
            query=_text(parameters, "query"),
            cursor=_text(parameters, "cursor"),
            limit=parameters.get("limit", 50),
        )
        return {
            "handles": [info_to_wire(info) for info in page.handles],
            "total": page.total,
            "next_cursor": page.next_cursor,
        }

    async def _load(self, parameters: Parameters, caller: Caller) -> Result:
        snapshot = await self._store.load(caller, _handle(parameters), version=parameters.get("version"))
        path = _text(parameters, "path") or ""
        value = resolve(snapshot.document, path)
        return {**info_to_wire(snapshot.info), "state": documents.dump(value)}

    async def _mint(self, parameters: Parameters, caller: Caller) -> Result:
        receipt = await self._store.mint(
            caller,
            kind=_required_text(parameters, "kind"),
            document=self._document(parameters),
            ttl_days=parameters.get("ttl_days"),
            title=_text(parameters, "title"),
        )
        return _receipt(receipt)

    async def _save(self, parameters: Parameters, caller: Caller) -> Result:
        receipt = await self._store.save(
            caller,
            _handle(parameters),
            document=self._document(parameters),
            expect_version=parameters.get("expect_version"),  # type: ignore[arg-type]  # the store checks it
            ttl_days=parameters.get("ttl_days", KEEP),
            title=parameters.get("title", KEEP),
        )
        return _receipt(receipt)

    async def _patch(self, parameters: Parameters, caller: Caller) -> Result:
        text = _required_text(parameters, "ops")
        ops = documents.parse(text, field="ops", limits=self._limits)
        if not isinstance(ops, list):
            raise InvalidInput("ops must be a list of operations.", field="ops")
        return _receipt(await self._store.patch(caller, _handle(parameters), operations_from_wire(ops)))

    async def _touch(self, parameters: Parameters, caller: Caller) -> Result:
        return _receipt(
            await self._store.touch(caller, _handle(parameters), ttl_days=parameters.get("ttl_days"))
        )

    async def _delete(self, parameters: Parameters, caller: Caller) -> Result:
        return _receipt(await self._store.delete(caller, _handle(parameters)))

    async def _import(self, parameters: Parameters, caller: Caller) -> Result:
        text = _required_text(parameters, "record")
        if len(text) <= LARGE_BYTES:
            record = self._record(text)
        else:  # others go on meanwhile
            record = await trio.to_thread.run_sync(self._record, text)
        return _receipt(await self._store.adopt(replace(caller, space=record.space), record))

    def _record(self, text: str) -> HandleRecord:
        deeper = replace(self._limits, max_depth=self._limits.max_depth + LEVELS_AROUND)
        line = cast("dict[str, Any]", documents.parse(text, field="record", limits=deeper))
        return record_from_json(line, limits=self._limits)

    async def _trash(self, _parameters: Parameters, caller: Caller) -> Result:
        return {
            "handles": [
                {
                    "info": info_to_wire(trashed.info),
                    "deleted_at": trashed.deleted_at,
                    "trash_until": trashed.trash_until,
                }
                for trashed in await self._store.trash(caller)
            ]
        }

    async def _undelete(self, parameters: Parameters, caller: Caller) -> Result:
        return _receipt(await self._store.undelete(caller, _handle(parameters)))

    async def _empty_trash(self, parameters: Parameters, caller: Caller) -> Result:
        return {"removed": await self._store.empty_trash(caller, _text(parameters, "handle"))}

    async def _stop(self, parameters: Parameters, _caller: Caller) -> Result:
        reason = parameters.get("reason", STOPPING)
        if reason not in (STOPPING, UPGRADING):
            raise InvalidInput(f"reason must be {STOPPING} or {UPGRADING}.", field="reason")
        self._stop_for(reason)
        return {"pid": self._pid}

    def _document(self, parameters: Parameters) -> documents.Document:
        document = documents.parse(_required_text(parameters, "state"), field="state", limits=self._limits)
        if not isinstance(document, dict):
            raise InvalidInput("state must be a JSON object.", field="state")
        return document


def error_to_wire(error: McpStateError) -> Result:
    """Return the payload of an error with documents as JSON text, as everywhere on the wire.

    What a conflict tells of the current state holds parts of the document, and msgpack stops at 64 bits.
    """
    payload = error.to_payload()
    if "current" in payload:
        payload["current"] = documents.dump(cast("documents.Json", payload["current"]))
    return payload


def _receipt(receipt: Receipt) -> Result:
    return {
        "info": info_to_wire(receipt.info),
        "is_changed": receipt.is_changed,
        "is_deleted": receipt.is_deleted,
        "touched": [[touched.op, touched.path, touched.length] for touched in receipt.touched],
        "trash_until": receipt.trash_until,
    }


def _refuse_unknown(parameters: Parameters, allowed: frozenset[str]) -> None:
    unknown = sorted(str(name) for name in parameters if name not in allowed)
    if unknown:
        raise InvalidInput(
            f"Unknown parameter {json.dumps(unknown[0])}; known are: {', '.join(sorted(allowed)) or 'none'}.",
            field=unknown[0],
        )


def _text(parameters: Parameters, name: str) -> str | None:
    value = parameters.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name} must be a string.", field=name)
    return value


def _required_text(parameters: Parameters, name: str) -> str:
    value = _text(parameters, name)
    if value is None:
        raise InvalidInput(f"{name} is required.", field=name)
    return value


def _handle(parameters: Parameters) -> str:
    return _required_text(parameters, "handle")
