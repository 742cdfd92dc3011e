"""Client of the agent of a space, for programs that run in it. It needs no URL and no token.

``svc.methods`` publishes methods, ``svc.client`` finds and calls them, ``svc.event`` emits events.
The agent is at ``SVC_AGENT_URL``, which it sets for everything it runs.
"""

from . import client, event, methods
from ._agent import AgentError
from .client import CallError

__all__ = ["AgentError", "CallError", "client", "event", "methods"]
