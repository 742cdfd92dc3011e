-- The prelude of every Lua state. It runs once per state, before the globals become read-only, and gets the functions
-- of the host in `native`. A script cannot reach the locals of this file.

local native = ...
local error, next, pcall, rawget, select, xpcall = error, next, pcall, rawget, select, xpcall
local freeze = table.freeze
local setmetatable = setmetatable
local tonumber, tostring, type = tonumber, tostring, type
local concat, create, find, match, sub = table.concat, table.create, table.find, string.match, string.sub

-- Returns the results of a protected call to a built-in function, or raises its error on the script's line: level 1 is
-- this function, 2 the wrapper, 3 the script. An error that already names a line of the script or of a module, or is no
-- text, is raised as it is.
local own_location = "prelude:0: "
local function has_location(problem)
	local chunk = match(problem, "^(.-):%d+: ")
	return chunk ~= nil and native.chunks[chunk] ~= nil
end
local function pass_on(succeeded, ...)
	if succeeded then
		return ...
	end
	local problem = ...
	if type(problem) ~= "string" or problem == native.no_memory or has_location(problem) then
		error(problem, 0)
	end
	error(if sub(problem, 1, #own_location) == own_location then sub(problem, #own_location + 1) else problem, 3)
end

-- The string searches run without an interrupt. Their work is at most the product of both lengths, which is limited
-- here.
local function bounded(name, search)
	return function(text, pattern, ...)
		local work = (type(text) == "string" and #text or 32) * (type(pattern) == "string" and #pattern or 32)
		if work > native.work then
			error("string." .. name .. ": the text and the pattern are too long for each other", 2)
		end
		return pass_on(pcall(search, text, pattern, ...))
	end
end

for _, name in { "find", "match", "gmatch", "gsub", "split" } do
	string[name] = bounded(name, string[name])
end

-- `table.move` runs without an interrupt for as many elements as its arguments say, present or not. An argument that is no
-- number is left to the built-in function, whose message is better.
local move = table.move
function table.move(from, first, last, ...)
	local low, high = tonumber(first), tonumber(last)
	if low and high and not (high - low < native.move) then
		error("table.move: at most " .. native.move .. " elements", 2)
	end
	return pass_on(pcall(move, from, first, last, ...))
end

-- The interpreter checks the run's clock when a Lua function is called, not when a built-in one is. So a built-in function
-- that calls another repeatedly gets a Lua function: the order of a sort, and the equality of a searched value.
local sort = table.sort
local function less(a, b)
	return a < b
end
function table.sort(list, order)
	local compare = if order == nil then less else order
	if type(order) == "function" then
		function compare(a, b)
			return order(a, b)
		end
	end
	return pass_on(pcall(sort, list, compare))
end

function table.find(list, value, ...)
	if type(list) ~= "table" or type(value) ~= "table" then
		return pass_on(pcall(find, list, value, ...))
	end
	local i = tonumber((...)) or 1
	while true do
		local item = rawget(list, i)
		if item == nil then
			return nil
		elseif item == value then
			return i
		end
		i += 1
	end
end

-- These can be called repeatedly by a built-in function, as a `__tostring`, so they become Lua functions too.
local function interruptible(call)
	return function(...)
		return pass_on(pcall(call, ...))
	end
end
table.concat, table.unpack = interruptible(table.concat), interruptible(table.unpack)
unpack = table.unpack

-- These read a number from each text among any number of arguments, so the sum of the lengths is limited. One text can be
-- passed many times.
local function limit_arguments(name, call, most)
	return function(...)
		local count = select("#", ...)
		if count > most then
			error(name .. ": at most " .. most .. " arguments", 2)
		elseif count > 2 then
			local length = 0
			for _, argument in { ... } do
				if type(argument) == "string" then
					length += #argument
				end
			end
			if length > native.text then
				error(name .. ": the arguments are too long", 2)
			end
		end
		return pass_on(pcall(call, ...))
	end
end

for library, names in {
	math = { "max", "min" },
	bit32 = { "band", "bor", "btest", "bxor" },
	string = { "char", "pack" },
	utf8 = { "char" },
} do
	local functions = _G[library]
	for _, name in names do
		functions[name] = limit_arguments(library .. "." .. name, functions[name], 1e6)
	end
end
-- Fewer arguments, because each may be a table with a `__tostring`.
string.format = limit_arguments("string.format", string.format, 250)

-- A function of the host returns whether it succeeded, the result or the message, whether that is in a box, and for a
-- structured error the name of the function. A failure becomes an error on the script's line: level 1 is `settle`, 2 the
-- wrapper below, 3 the script.
local raisers = setmetatable({}, { __mode = "k" })
local function host_error_text(problem)
	local message = rawget(problem, "message")
	return raisers[problem] .. ": " .. (if type(message) == "string" then message else "it failed")
end
local foreign = table.freeze({ __tostring = host_error_text, __metatable = "error" })

local function settle(succeeded, result, boxed, raiser)
	if boxed then
		result = result[1]
	end
	if succeeded then
		return result
	elseif not raiser then
		error(result, 3)
	elseif type(result) ~= "table" then
		error(raiser .. ": " .. tostring(result), 0)
	end
	-- A structured error from elsewhere. If the script does not catch it, the run fails with it on this line.
	raisers[result] = raiser
	error(setmetatable(result, foreign), 0)
end

-- No function takes more than three arguments; further ones that a script passes are dropped at no cost.
function native.raising(call)
	return function(first, second, third)
		return settle(call(first, second, third))
	end
end

local function line(...)
	local count = select("#", ...)
	local words = create(count)
	for i = 1, count do
		words[i] = tostring((select(i, ...)))
	end
	return concat(words, "\t")
end

function print(...)
	native.log(line(...))
end

log = {}
for _, level in { "debug", "info", "warn", "error" } do
	log[level] = function(...)
		native.log(level .. ": " .. line(...), true)
	end
end

-- Makes a library read-only, and the use of a member it does not have an error that names those it has. The metatable is
-- locked after the library is frozen, because `table.freeze` refuses a table whose metatable is locked.
function native.library(name, members)
	local metatable = {}
	function metatable.__index(_, key)
		local names = {}
		for member in next, members do
			names[#names + 1] = member
		end
		sort(names)
		error(name .. " has no `" .. tostring(key) .. "`: it has " .. concat(names, ", "), 2)
	end
	freeze(setmetatable(members, metatable))
	metatable.__metatable = "library"
	freeze(metatable)
	return members
end

-- The metatable of a table with a field that cannot be read: the use of the field is an error on the script's line.
function native.unreadable(field, problem)
	return freeze({
		__index = function(_, key)
			if key == field then
				error(problem, 2)
			end
			return nil
		end,
		__metatable = "request",
	})
end

-- Without any memory `trace` fails too, with this message and only then.
local function cause(problem)
	return if problem == "error in error handling" then native.no_memory else problem
end

-- The text of an error that is no text.
local function error_text(problem)
	if problem == nil then
		return "an error was raised without a message"
	elseif raisers[problem] then
		return host_error_text(problem)
	elseif type(problem) == "table" and type(rawget(problem, "message")) == "string" then
		return rawget(problem, "message")
	end
	-- The address of a table helps nobody.
	local text = tostring(problem)
	return if match(text, "^table: 0x") then "an error was raised that is a table without a `message`" else text
end

-- The text of an error that went through `trace`, with its location.
local function text_with_location(raised)
	if type(raised) ~= "table" then
		return cause(raised)
	end
	local text = error_text(raised.problem)
	return if raised.location then raised.location .. ": " .. text else text
end

-- Returns the result of a call, or the `code`, `message`, `data` and location of a structured error
-- (`error { code = …, message = …, data = … }`). An error that a method answered with becomes the `data` of another. Every
-- other error is raised again as a text. A call that returned `nil` or `false` and a reason has failed with the reason.
local function conclude(succeeded, ...)
	local raised = ...
	if succeeded then
		local result, reason = ...
		if result or reason == nil then
			return true, result
		end
		raised = { problem = reason }
	end
	local problem = if type(raised) == "table" then raised.problem else nil
	if type(problem) == "table" then
		local location = raised.location
		local code, message = rawget(problem, "code"), rawget(problem, "message")
		if raisers[problem] then
			return false, nil, host_error_text(problem), problem, location
		elseif code ~= nil or message ~= nil then
			return false, code, message, rawget(problem, "data"), location
		end
	end
	error(text_with_location(raised), 0)
end

-- The error handler of a run: it records the location of an error while the stack still exists.
local function trace(problem)
	if problem == native.no_memory then
		native.record_location()
	elseif type(problem) == "string" then
		if problem == "attempt to modify a readonly table" then
			local location = native.location()
			return if location then location .. ": " .. problem else problem
		end
	elseif type(problem) ~= "userdata" then
		return { problem = problem, location = native.location() }
	end
	return problem
end

function native.attempt(call, ...)
	return conclude(xpcall(call, trace, ...))
end

-- Returns the results of a call, or raises its error again as a text.
local function pass(succeeded, ...)
	if succeeded then
		return ...
	end
	error(text_with_location((...)), 0)
end

function native.traced(call)
	return pass(xpcall(call, trace))
end

-- Records a module as loaded once its chunk has run.
local function finish_loading(loaded, name, succeeded, ...)
	loaded[#loaded] = nil
	if not succeeded then
		error((...), 0)
	end
	local module = ...
	if module == nil then
		module = true
	end
	loaded[name] = { module }
	return module
end

function require(name)
	if name == "svc.event" and native.event then
		return native.library("svc.event", native.event(native.scope()))
	end
	local module = native.modules[name]
	if module ~= nil then
		return module
	end
	if type(name) == "string" then
		local loaded = native.loaded()
		local box = loaded[name]
		if box then
			return box[1]
		end
		local first = find(loaded, name)
		if first then
			error(concat(loaded, " requires ", first) .. " requires " .. name, 2)
		end
		local chunk, problem = native.find(name)
		if chunk then
			loaded[#loaded + 1] = name
			return finish_loading(loaded, name, pcall(chunk, name))
		elseif problem then
			error("cannot load `" .. name .. "`: " .. problem, 2)
		end
	end
	error("no module named `" .. tostring(name) .. "` in a " .. native.kind, 2)
end
