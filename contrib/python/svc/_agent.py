"""Requests to the agent of this space: HTTP on this machine, JSON in both directions."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from typing import Any, Optional

DEFAULT_URL = "http://127.0.0.1:7301"

# The agent is on the same machine: configured proxies do not apply.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AgentError(Exception):
    """The agent refused a request or could not be reached.

    ``code``, such as ``not_connected``, is stable between versions; the message is for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def ask(method: str, path: str, body: Optional[Any] = None, timeout: Optional[float] = None) -> Any:
    """Sends a request and returns the decoded JSON response; ``None`` if the response is empty."""
    base = (os.environ.get("SVC_AGENT_URL") or DEFAULT_URL).rstrip("/")
    data = None if body is None else encode(body)
    headers = {} if data is None else {"Content-Type": "application/json"}
    # Set by the agent for its set-up scripts; it identifies the script.
    setup = os.environ.get("SVC_SETUP")
    if setup:
        headers["Svc-Setup"] = setup
    request = urllib.request.Request(base + path, data=data, headers=headers, method=method)
    try:
        with _opener.open(request, timeout=timeout) as response:
            answer = response.read()
    except urllib.error.HTTPError as error:
        raise _refusal(error.code, _read(error)) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise AgentError("unreachable", f"cannot reach the agent of this space at {base}: {why}") from None
    if not answer:
        return None
    try:
        return json.loads(answer)
    except ValueError:
        raise AgentError("foreign", f"the program that answers at {base} is not an agent: check SVC_AGENT_URL") from None


def encode(value: Any) -> bytes:
    """Encodes a value as JSON. Raises ``TypeError`` or ``ValueError`` if it has no JSON form."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _read(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read()
    except (OSError, http.client.HTTPException):
        return b""


def _refusal(status: int, answer: bytes) -> AgentError:
    try:
        error = json.loads(answer)["error"]
        return AgentError(str(error["code"]), str(error["message"]))
    except (ValueError, LookupError, TypeError):
        return AgentError("refused", f"the agent answered with status {status}")
