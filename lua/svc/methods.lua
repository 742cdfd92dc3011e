-- `local methods = require "svc.methods"`: publish methods of this space.
--
--     local server = methods.Server("./bin/notes-rpc", { timeout = 30 })
--     server:method { name = "{{space}}.search", local_name = "search", description = "Search the notes" }
--     server:register()
--
-- The agent and the server check a registration: `register` raises their message, which names the field. Mistakes that can
-- be found earlier are errors on the line where they were written.
--
-- Registering makes the agent run a process, so a program without `process` (`svc run --sandbox`) has no `svc.agent` either.
local agent = rawget(svc, "agent")
local schema = require("svc.methods.schema")
local floor, gsub, array = math.floor, string.gsub, json.array

local function text(value)
	return if type(value) == "string" then nil else "a string"
end

local function whole(value)
	local fits = type(value) == "number" and value - value == 0 and floor(value) == value
	return if fits then nil else "a whole number"
end

local function flag(value)
	return if type(value) == "boolean" then nil else "true or false"
end

local function words(value)
	if type(value) ~= "table" then
		return "a list of strings"
	end
	local count = 0
	for _, word in pairs(value) do
		if type(word) ~= "string" then
			return "a list of strings"
		end
		count += 1
	end
	return if count == #value then nil else "a list of strings"
end

local of_server = { type = text, timeout = whole, args = words, mode = text }

local of_method = {
	name = text,
	local_name = text,
	description = text,
	keywords = words,
	scope = text,
	groups = words,
	mcp_tool = flag,
	params = "schema",
	result = "schema",
	events = words,
	filter = text,
	event_sinks = words,
}

-- Fields that are schemas, with their names in a registration.
local schemas = { params = "params_schema", result = "result_schema" }

local function schema_fault(name, value)
	if getmetatable(value) == "optional" then
		return "`" .. name .. "` cannot be optional: only a property of an object can"
	elseif type(value) ~= "table" or #value > 0 then
		return "`" .. name .. "` is a schema, not a " .. (if type(value) == "table" then "list" else type(value))
	end
	return nil
end

-- Returns the checked fields, or nil and the message of what is wrong. An empty list counts as absent.
local function checked(fields, known, what)
	local taken = {}
	for name, value in pairs(fields) do
		local wanted = known[name]
		local fault
		if known[name] == "schema" then
			fault = schema_fault(name, value)
		elseif wanted == nil then
			fault = "`" .. tostring(name) .. "` is nothing that " .. what .. " has"
		elseif wanted(value) then
			local shown = if type(value) == "string" or type(value) == "number" then tostring(value) else "a " .. type(value)
			fault = "`" .. name .. "` is " .. wanted(value) .. ", not " .. shown
		end
		if fault then
			return nil, fault
		elseif wanted == "schema" then
			taken[schemas[name]] = value
		elseif type(value) ~= "table" or #value > 0 then
			taken[name] = value
		end
	end
	return taken
end

-- Returns the method names in an agent's answer, or nil and its error.
local function named(field, succeeded, answer)
	if not succeeded then
		return nil, if type(answer) == "string" then (gsub(answer, "^%l+: ", "", 1)) else answer
	end
	local names = array({})
	for index, method in ipairs(answer[field]) do
		names[index] = method.name
	end
	return names
end

local Server = {}
Server.__index = Server
Server.__metatable = "server"
setmetatable(Server, {
	__index = function(_, name)
		error("a server has no `" .. tostring(name) .. "`: it has method, register, unregister", 2)
	end,
})

-- Adds a method, to be published with the next `register`.
function Server:method(fields)
	if type(fields) ~= "table" then
		error("method takes a table of fields: server:method { name = …, local_name = …, description = … }", 2)
	end
	local method, fault = checked(fields, of_method, "a method")
	for _, name in ipairs({ "name", "local_name", "description" }) do
		if not fault and method[name] == nil then
			fault = "a method needs a `" .. name .. "`"
		end
	end
	if fault then
		error(fault, 2)
	end
	self.methods[#self.methods + 1] = method
end

-- Publishes the methods in place of all that this space published before. Returns their names.
function Server:register()
	if agent == nil then
		error("register: --sandbox takes it away", 2)
	end
	local registration = { server = self.server, methods = array(self.methods) }
	local names, fault = named("methods", pcall(agent.register, registration))
	if fault then
		error(fault, 2)
	end
	return names
end

-- Removes one method by its local name, or all of them; the server process is stopped when none is left. Returns the
-- removed names.
function Server:unregister(local_name)
	if local_name ~= nil and type(local_name) ~= "string" then
		error("`local_name` is a string, not a " .. type(local_name), 2)
	end
	if agent == nil then
		error("unregister: --sandbox takes it away", 2)
	end
	local names, fault = named("removed", pcall(agent.unregister, local_name))
	if fault then
		error(fault, 2)
	end
	local kept = {}
	for _, method in ipairs(self.methods) do
		if local_name ~= nil and method.local_name ~= local_name then
			kept[#kept + 1] = method
		end
	end
	self.methods = kept
	return names
end

local methods = setmetatable({ schema = schema }, {
	__index = function(_, name)
		error("svc.methods has no `" .. tostring(name) .. "`: it has Server, schema", 2)
	end,
	__metatable = "library",
})

-- Describes the method server: its command and options.
function methods.Server(command, options)
	if type(command) ~= "string" then
		error("`command` is a string, not a " .. type(command), 2)
	elseif options ~= nil and type(options) ~= "table" then
		error("methods.Server takes its options as a table, not a " .. type(options), 2)
	end
	local server, fault = checked(options or {}, of_server, "a server")
	if fault then
		error(fault, 2)
	end
	server.command = command
	return setmetatable({ server = server, methods = {} }, Server)
end

return methods
