"""What a program in a space asks of the agent beside it. No URL and no token is needed.

``svc.methods`` publishes methods, ``svc.client`` finds and calls them, ``svc.event`` raises events.
The agent is found at ``SVC_AGENT_URL``, which it sets for everything it runs.
"""

from . import client, event, methods
from ._agent import AgentError
from .client import CallError

__all__ = ["AgentError", "CallError", "client", "event", "methods"]
