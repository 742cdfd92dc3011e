"""The methods that this space publishes."""

from svc.methods import Server, schema as s

note = s.object(text=s.string(min_length=1, description="what to write down"))

server = Server("python3", args=["server.py"], timeout=10, mode="serial")

server.method(
    "{{space}}.add",
    "add",
    "Write a note down",
    keywords=["note", "write"],
    mcp_tool=True,
    params=note,
    result=s.integer(minimum=1, description="how many notes there are"),
)
server.method(
    "{{space}}.list",
    "list",
    "List the notes, the newest last",
    params=s.object(last=s.optional(s.integer(minimum=1), 100)),
    result=s.array(note),
)
server.method("{{space}}.released", "released", "Write a release down", events=["custom.release.*"])

print("published", ", ".join(server.register()))
