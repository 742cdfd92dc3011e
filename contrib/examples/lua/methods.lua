-- The methods that this space publishes.

local methods = require "svc.methods"
local s = require "svc.methods.schema"

local note = s.object { text = s.string { min_length = 1, description = "what to write down" } }

local server = methods.Server("svc", { args = { "run", "--json-rpc", "server.lua" }, timeout = 10 })

server:method {
	name = "{{space}}.add",
	local_name = "add",
	description = "Write a note down",
	keywords = { "note", "write" },
	mcp_tool = true,
	params = note,
	result = s.integer { minimum = 1, description = "how many notes there are" },
}
server:method {
	name = "{{space}}.list",
	local_name = "list",
	description = "List the notes, the newest last",
	params = s.object { last = s.optional(s.integer { minimum = 1 }, 100) },
	result = s.array(note),
}
server:method {
	name = "{{space}}.released",
	local_name = "released",
	description = "Write a release down",
	events = { "custom.release.*" },
}

print("published " .. table.concat(server:register(), ", "))
