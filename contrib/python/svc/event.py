"""Raise events: ``svc.event.emit("deploy.done", {"version": "1.2"})``."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from . import _agent

__all__ = ["emit"]


def emit(type: str, payload: Optional[Mapping[str, Any]] = None) -> str:
    """Raises ``custom.<type>`` and returns its id once the agent has it on disk.

    The agent sends it on as soon as a server takes it. Raises ``svc.AgentError`` if it is refused.
    """
    body = {"type": type, "payload": {} if payload is None else dict(payload)}
    answer = _agent.ask("POST", "/event", body)
    return str(answer["event_id"])
