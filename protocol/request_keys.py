"""Request keys: how a caller names a write, so that it may repeat it without doing it twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from mcpstated.protocol.errors import InvalidInput
from mcpstated.protocol.fields import check_request_key
from mcpstated.protocol.limits import Limits
from mcpstated.protocol.store import RequestKey


def request_key(key: object, operation: str, arguments: Mapping[str, object], limits: Limits) -> RequestKey:
    """Return the name of one write, with a digest of what it asks for.

    Args:
        key: What the caller chose.
        operation: What is done, in the words of the interface that was called.
        arguments: Plain JSON values beside the key; the order of names does not count.

    Raises:
        InvalidInput: The key is no text of 1 to `limits.max_request_key_chars` characters, or an argument
            is no JSON value.
    """
    name = check_request_key(key, limits)
    try:
        text = json.dumps([operation, arguments], sort_keys=True, ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput("The arguments must be JSON values.", field="request_key") from error
    return RequestKey(name, hashlib.sha256(text.encode("ascii")).digest())
