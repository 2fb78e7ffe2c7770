"""The service's own description as schemathesis reads it."""

from typing import Any

from tests.service.support.servers import Server

EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "event": {"type": "string"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"type": "object", "required": ["time", "type"]},
        },
    },
}


def described(server: Server) -> dict[str, Any]:
    """What it serves, where an event stream is text, as generated clients read it.

    Schemathesis takes the schema of a stream for that of each event.
    """
    document: dict[str, Any] = server.client.get("/openapi.json").json()
    for path in document["paths"].values():
        for operation in path.values():
            for answer in operation["responses"].values():
                if "text/event-stream" in answer.get("content", {}):
                    answer["content"]["text/event-stream"] = {"itemSchema": EVENT}
    return document
