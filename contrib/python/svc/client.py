"""Finds and calls methods as the owner of this space: ``svc.client.call("notes.search", {"query": "tea"})``."""

from __future__ import annotations

import urllib.parse
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from . import _agent

__all__ = ["CallError", "batch", "call", "get", "list", "notify"]

Params = Optional[Mapping[str, Any]]


class CallError(Exception):
    """The JSON-RPC error of a call: its ``code``, ``message`` and ``data``."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def list() -> List[Dict[str, Any]]:
    """Returns the callable methods with their names, descriptions and schemas."""
    methods: List[Dict[str, Any]] = _agent.ask("GET", "/api/methods")["methods"]
    return methods


def get(name: str) -> Dict[str, Any]:
    """Returns one method by its name. Raises ``svc.AgentError`` with the code ``not_found`` if there is none."""
    method: Dict[str, Any] = _agent.ask("GET", "/api/methods/" + urllib.parse.quote(name, safe=""))
    return method


def call(name: str, params: Params = None) -> Any:
    """Calls a method and returns its result. Raises ``CallError`` if it fails."""
    return _outcome(_agent.ask("POST", "/api/methods/call", _request(name, params, 1)), raising=True)


def notify(name: str, params: Params = None) -> None:
    """Calls a method without waiting for its result."""
    _agent.ask("POST", "/api/methods/call", _request(name, params, None))


def batch(calls: Iterable[Tuple[str, Params]]) -> List[Union[Any, CallError]]:
    """Calls several methods at once. Results are in the order of the calls; a failed call is a ``CallError``."""
    requests = [_request(name, params, index) for index, (name, params) in enumerate(calls)]
    if not requests:
        return []
    answers = _agent.ask("POST", "/api/methods/call", requests)
    if isinstance(answers, dict):
        # The batch as a whole was refused.
        _outcome(answers, raising=True)
    return [_outcome(answer, raising=False) for answer in answers]


def _request(name: str, params: Params, id: Optional[int]) -> Dict[str, Any]:
    request: Dict[str, Any] = {"jsonrpc": "2.0", "method": name, "params": {} if params is None else dict(params)}
    if id is not None:
        request["id"] = id
    return request


def _outcome(answer: Dict[str, Any], raising: bool) -> Any:
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    failed = CallError(error["code"], error["message"], error.get("data"))
    if raising:
        raise failed
    return failed
