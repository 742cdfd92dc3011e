"""Emits events: ``svc.event.emit("deploy.done", {"version": "1.2"})``."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from . import _agent

__all__ = ["emit"]


def emit(type: str, payload: Optional[Mapping[str, Any]] = None) -> str:
    """Emits ``custom.<type>`` and returns its id after the agent has stored it on disk.

    The agent forwards the event when a server accepts it. Raises ``svc.AgentError`` if the event is refused.
    """
    body = {"type": type, "payload": {} if payload is None else dict(payload)}
    answer = _agent.ask("POST", "/event", body)
    return str(answer["event_id"])
