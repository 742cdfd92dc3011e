"""Publishes methods of this space.

    from svc.methods import Server, schema as s

    server = Server("./bin/notes-rpc", timeout=30)
    server.method("{{space}}.search", "search", "Search the notes",
                  params=s.object(query=s.string(min_length=1), limit=s.optional(s.integer(), 10)))
    server.register()

The agent and the server validate a registration: ``register()`` raises a ``svc.AgentError`` that names the invalid field.
An argument of the wrong type is a ``TypeError`` at the call that has it.
"""

from __future__ import annotations

import os
import sys
import urllib.parse
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .. import _agent
from . import schema

__all__ = ["Server", "schema"]


class Server:
    """A method server: the command that runs it, and its methods."""

    def __init__(
        self,
        command: str,
        *,
        type: str = "stdio",
        timeout: int = 30,
        args: Optional[Sequence[str]] = None,
        mode: str = "concurrent",
    ) -> None:
        self._server: Dict[str, Any] = {
            "type": _text("type", type),
            "command": _text("command", command),
            "args": _words("args", args),
            "timeout": _whole("timeout", timeout),
            "mode": _text("mode", mode),
        }
        self._methods: List[Dict[str, Any]] = []

    def method(
        self,
        name: str,
        local_name: str,
        description: str,
        keywords: Optional[Sequence[str]] = None,
        scope: str = "private",
        groups: Optional[Sequence[str]] = None,
        mcp_tool: bool = False,
        params: Optional[Mapping[str, Any]] = None,
        result: Optional[Mapping[str, Any]] = None,
        events: Optional[Sequence[str]] = None,
        event_sinks: Optional[Sequence[str]] = None,
        filter: Optional[str] = None,
    ) -> None:
        """Adds a method; ``register()`` publishes it."""
        if not isinstance(mcp_tool, bool):
            raise TypeError(f"`mcp_tool` is True or False, not {mcp_tool!r}")
        method: Dict[str, Any] = {
            "name": _text("name", name),
            "local_name": _text("local_name", local_name),
            "description": _text("description", description),
            "scope": _text("scope", scope),
            "mcp_tool": mcp_tool,
        }
        lists = {"keywords": keywords, "groups": groups, "events": events, "event_sinks": event_sinks}
        for field, given in lists.items():
            if given is not None:
                method[field] = _words(field, given)
        if filter is not None:
            method["filter"] = _text("filter", filter)
        for field, field_schema in (("params", params), ("result", result)):
            if field_schema is not None:
                method[field + "_schema"] = schema.checked(field, field_schema)
        self._methods.append(method)

    def register(self) -> List[str]:
        """Publishes the methods, replaces all methods of this space, and returns the published names."""
        registration = {"server": self._server, "methods": self._methods}
        script = _script()
        # The method server runs in the directory of the script, as with a registration file.
        directory = os.getcwd() if script is None else os.path.dirname(script)
        body = {"directory": directory, "script": script, "registration": registration}
        answer = _agent.ask("POST", "/methods", body)
        return [method["name"] for method in answer["methods"]]

    def unregister(self, local_name: Optional[str] = None) -> List[str]:
        """Removes one method by its local name, or all methods. The server process stops with the last one.

        Returns the removed names.
        """
        if local_name is None:
            path = "/methods"
        else:
            path = "/methods/" + urllib.parse.quote(_text("local_name", local_name), safe="")
        answer = _agent.ask("DELETE", path)
        removed = local_name
        self._methods = [method for method in self._methods if removed is not None and method["local_name"] != removed]
        return [method["name"] for method in answer["removed"]]


def _script() -> Optional[str]:
    """The file that this program was started from, if any."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(script) if script and os.path.isfile(script) else None


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"`{field}` is a string, not {value!r}")
    return value


def _whole(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"`{field}` is a whole number, not {value!r}")
    return value


def _words(field: str, value: Optional[Sequence[str]]) -> List[str]:
    if value is None:
        return []
    # A string is a sequence of strings too, but never meant as a list.
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(word, str) for word in value):
        raise TypeError(f"`{field}` is a list of strings, not {value!r}")
    return list(value)
