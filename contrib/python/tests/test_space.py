"""Requests to the agent, and the handling of its responses."""

import os
import unittest
from typing import Any, Callable, Dict, List, Tuple
from unittest import mock

import svc
from svc.methods import Server, schema as s
from tests.agent import WithAgent

NAMED = {"name": "notes.a", "local_name": "a"}


class Registering(WithAgent):
    def test_a_registration_has_what_was_given_and_the_defaults(self) -> None:
        self.answers[("POST", "/methods")] = (200, {"methods": [NAMED]})
        server = Server("./serve")
        server.method("{{space}}.a", "a", "A")
        self.assertEqual(server.register(), ["notes.a"])
        ((_, _, body),) = self.asked
        self.assertTrue(os.path.isabs(body["directory"]) and os.path.isdir(body["directory"]))
        self.assertEqual(
            body["registration"],
            {
                "server": {
                    "type": "stdio",
                    "command": "./serve",
                    "args": [],
                    "timeout": 30,
                    "mode": "concurrent",
                },
                "methods": [
                    {
                        "name": "{{space}}.a",
                        "local_name": "a",
                        "description": "A",
                        "scope": "private",
                        "mcp_tool": False,
                    }
                ],
            },
        )

    def test_every_field_arrives_also_by_its_place(self) -> None:
        self.answers[("POST", "/methods")] = (200, {"methods": []})
        server = Server("x", type="stdio", timeout=5, args=("-v",), mode="serial")
        raw = {"type": "object"}
        server.method("n", "l", "d", ["k"], "shared", ["g"], True, s.null(), raw, ["custom.*"], ["f"])
        server.register()
        registration = self.asked[0][2]["registration"]
        self.assertEqual(registration["server"]["args"], ["-v"])
        self.assertEqual(
            registration["methods"],
            [
                {
                    "name": "n",
                    "local_name": "l",
                    "description": "d",
                    "keywords": ["k"],
                    "scope": "shared",
                    "groups": ["g"],
                    "mcp_tool": True,
                    "params_schema": {"type": "null"},
                    "result_schema": raw,
                    "events": ["custom.*"],
                    "event_sinks": ["f"],
                }
            ],
        )

    def test_unregistering_one_also_takes_it_from_the_object(self) -> None:
        self.answers[("DELETE", "/methods/a%2Fb")] = (200, {"removed": [NAMED]})
        self.answers[("DELETE", "/methods")] = (200, {"removed": []})
        self.answers[("POST", "/methods")] = (200, {"methods": []})
        server = Server("x")
        server.method("a", "a/b", "A")
        server.method("b", "b", "B")
        self.assertEqual(server.unregister("a/b"), ["notes.a"])
        server.register()
        self.assertEqual([method["local_name"] for method in self.asked[-1][2]["registration"]["methods"]], ["b"])
        self.assertEqual(server.unregister(), [])
        server.register()
        self.assertEqual(self.asked[-1][2]["registration"]["methods"], [])

    def test_a_refusal_says_what_the_agent_said(self) -> None:
        self.refuse("POST", "/methods", 400, "bad_request", "`methods[0].name`: must have 1 to 255 bytes")
        server = Server("x")
        server.method("", "a", "A")
        with self.assertRaises(svc.AgentError) as raised:
            server.register()
        self.assertEqual(raised.exception.code, "bad_request")
        self.assertEqual(str(raised.exception), "`methods[0].name`: must have 1 to 255 bytes")

    def test_misuse_is_named_where_it_is_written(self) -> None:
        server = Server("x")
        method: Callable[..., None] = lambda **given: server.method("n", "l", "d", **given)
        make: Callable[..., Server] = Server
        misuses: List[Tuple[Callable[..., Any], Dict[str, Any], str]] = [
            (method, {"keyword": ["k"]}, "keyword"),
            (method, {"keywords": "k"}, "`keywords` is a list of strings"),
            (method, {"groups": [1]}, "`groups`"),
            (method, {"mcp_tool": "yes"}, "`mcp_tool`"),
            (method, {"params": "object"}, "`params` is a schema"),
            (method, {"result": s.optional(s.null())}, "`result` cannot be optional"),
            (make, {"command": 5}, "`command` is a string"),
            (make, {"command": "x", "timeout": 1.5}, "`timeout` is a whole number"),
            (make, {"command": "x", "args": "-v"}, "`args`"),
            (make, {"command": "x", "port": 5}, "port"),
        ]
        for misused, given, part in misuses:
            with self.assertRaises(TypeError) as raised:
                misused(**given)
            self.assertIn(part, str(raised.exception))
        self.assertRaises(TypeError, make, "x", "stdio")


class Calling(WithAgent):
    def call(self, answer: Any) -> None:
        self.answers[("POST", "/api/methods/call")] = (200, answer)

    def test_a_result_is_returned_and_an_error_raised(self) -> None:
        self.call({"jsonrpc": "2.0", "id": 1, "result": [1]})
        self.assertEqual(svc.client.call("notes.search", {"query": "tea"}), [1])
        request = {"jsonrpc": "2.0", "method": "notes.search", "params": {"query": "tea"}, "id": 1}
        self.assertEqual(self.asked[0], ("POST", "/api/methods/call", request))
        self.call({"jsonrpc": "2.0", "id": 1, "error": {"code": 7, "message": "no", "data": {"a": 1}}})
        with self.assertRaises(svc.CallError) as raised:
            svc.client.call("notes.search")
        error = raised.exception
        self.assertEqual((error.code, str(error), error.data), (7, "no", {"a": 1}))

    def test_a_batch_has_its_failures_in_place(self) -> None:
        failed = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "none"}}
        self.call([{"jsonrpc": "2.0", "id": 0, "result": None}, failed])
        first, second = svc.client.batch([("a", None), ("b", {"x": 1})])
        self.assertIsNone(first)
        self.assertIsInstance(second, svc.CallError)
        self.call({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "too many"}})
        self.assertRaises(svc.CallError, svc.client.batch, [("a", None)])
        self.assertEqual(svc.client.batch([]), [])

    def test_a_notification_has_no_id_and_no_answer(self) -> None:
        self.answers[("POST", "/api/methods/call")] = (204, None)
        svc.client.notify("a", {})
        self.assertNotIn("id", self.asked[0][2])

    def test_methods_are_listed_and_looked_up(self) -> None:
        self.answers[("GET", "/api/methods")] = (200, {"methods": [{"name": "a"}]})
        self.answers[("GET", "/api/methods/a.b")] = (200, {"name": "a.b"})
        self.assertEqual(svc.client.list(), [{"name": "a"}])
        self.assertEqual(svc.client.get("a.b"), {"name": "a.b"})


class Events(WithAgent):
    def test_an_event_is_raised_and_its_id_returned(self) -> None:
        self.answers[("POST", "/event")] = (202, {"event_id": "01a1", "event_type": "custom.deploy.done"})
        self.assertEqual(svc.event.emit("deploy.done", {"version": "1.2"}), "01a1")
        self.assertEqual(svc.event.emit("deploy.done"), "01a1")
        bodies = [body for _, _, body in self.asked]
        self.assertEqual(
            bodies,
            [{"type": "deploy.done", "payload": {"version": "1.2"}}, {"type": "deploy.done", "payload": {}}],
        )

    def test_what_is_not_json_never_leaves(self) -> None:
        self.assertRaises(ValueError, svc.event.emit, "a", {"x": float("nan")})
        self.assertRaises(TypeError, svc.event.emit, "a", {"x": object()})
        self.assertEqual(self.asked, [])

    def test_no_agent_is_an_error_that_says_where_it_was_looked_for(self) -> None:
        with mock.patch.dict(os.environ, {"SVC_AGENT_URL": "http://127.0.0.1:1"}):
            with self.assertRaises(svc.AgentError) as raised:
                svc.event.emit("a")
        self.assertEqual(raised.exception.code, "unreachable")
        self.assertIn("http://127.0.0.1:1", str(raised.exception))

    def test_an_answer_that_is_no_agents_is_told(self) -> None:
        self.answers[("POST", "/event")] = (502, "nonsense")
        with self.assertRaises(svc.AgentError) as raised:
            svc.event.emit("a")
        self.assertIn("502", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
