"""A fake agent that records requests and answers as the test decides."""

from __future__ import annotations

import json
import os
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, List, Optional, Tuple
from unittest import mock

Asked = Tuple[str, str, Any]


class WithAgent(unittest.TestCase):
    """Runs a fake agent at SVC_AGENT_URL for each test."""

    def setUp(self) -> None:
        self.asked: List[Asked] = []
        self.answers: Dict[Tuple[str, str], Tuple[int, Optional[Any]]] = {}
        test = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                if body is not None and self.headers["Content-Type"] != "application/json":
                    raise AssertionError("the agent takes nothing but JSON")
                test.asked.append((self.command, self.path, body))
                status, answer = test.answers[(self.command, self.path)]
                data = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        # A proxy that would swallow the request if it were used.
        settings = {"SVC_AGENT_URL": f"http://127.0.0.1:{server.server_port}/", "http_proxy": "http://127.0.0.1:9"}
        environment = mock.patch.dict(os.environ, settings)
        environment.start()
        self.addCleanup(environment.stop)
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)

    def refuse(self, method: str, path: str, status: int, code: str, message: str) -> None:
        self.answers[(method, path)] = (status, {"error": {"code": code, "message": message}})
