-- What every sandbox starts with. It runs once per state, before the globals become read-only, and gets
-- what only the host can do in `native`. What is local here is out of a script's reach.

local native = ...
local error, pcall, rawget, select, xpcall = error, pcall, rawget, select, xpcall
local setmetatable = setmetatable
local tonumber, tostring, type = tonumber, tostring, type
local concat, create, find, match, sub = table.concat, table.create, table.find, string.match, string.sub

-- What a built-in function called from here complains of happened on the script's line, not on ours. An error
-- that already names a line of the script or of a module, or is none of their making, is passed on as it is. Above
-- this call is the wrapper, and above that the script.
local ours = "prelude:0: "
local function is_placed(problem)
	local chunk = match(problem, "^(.-):%d+: ")
	return chunk ~= nil and native.chunks[chunk] ~= nil
end
local function pass_on(worked, ...)
	if worked then
		return ...
	end
	local problem = ...
	if type(problem) ~= "string" or problem == native.no_memory or is_placed(problem) then
		error(problem, 0)
	end
	error(if sub(problem, 1, #ours) == ours then sub(problem, #ours + 1) else problem, 3)
end

-- These run to their end without a look at the clock. Their work is at most the product of both lengths,
-- so that is what is limited.
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

-- Likewise, for as many elements as its arguments say, there or not. What is no number passes: the built-in
-- function says so better.
local move = table.move
function table.move(from, first, last, ...)
	local low, high = tonumber(first), tonumber(last)
	if low and high and not (high - low < native.move) then
		error("table.move: at most " .. native.move .. " elements", 2)
	end
	return pass_on(pcall(move, from, first, last, ...))
end

-- A Lua function looks at the clock when it is called, a built-in one does not. So whatever a built-in
-- function calls over and over is one of ours: the order of a sort, and the equality of what is looked for.
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

-- And these can be called over and over, as a `__tostring`.
local function visible(call)
	return function(...)
		return pass_on(pcall(call, ...))
	end
end
table.concat, table.unpack = visible(table.concat), visible(table.unpack)
unpack = table.unpack

-- These read a number from each text among any number of arguments, so that it is all of their lengths that
-- counts. One text can be there many times.
local function measured(name, call, most)
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
		functions[name] = measured(library .. "." .. name, functions[name], 1e6)
	end
end
-- Fewer, for each may be a table with a `__tostring`.
string.format = measured("string.format", string.format, 250)

-- Calls into the host return whether they worked, the result, and whether that is in a box. What went wrong
-- becomes an error on the script's line: above this call is the wrapper below, and above that the script.
local raisers = setmetatable({}, { __mode = "k" })
local function told(problem)
	local message = rawget(problem, "message")
	return raisers[problem] .. ": " .. (if type(message) == "string" then message else "it failed")
end
local foreign = table.freeze({ __tostring = told, __metatable = "error" })

local function settle(worked, result, boxed, raiser)
	if boxed then
		result = result[1]
	end
	if worked then
		return result
	elseif not raiser then
		error(result, 3)
	elseif type(result) ~= "table" then
		error(raiser .. ": " .. tostring(result), 0)
	end
	-- Somebody else's error, with its parts. Who does not catch it has failed in another way, and on this line.
	raisers[result] = raiser
	error(setmetatable(result, foreign), 0)
end

-- No function takes more than three; what else a script passes must not cost anything on its way.
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

-- With no memory at all `trace` fails too, and with nothing else.
local function cause(problem)
	return if problem == "error in error handling" then native.no_memory else problem
end

-- What an error says that is no text.
local function described(problem)
	if problem == nil then
		return "an error was raised without a message"
	elseif raisers[problem] then
		return told(problem)
	elseif type(problem) == "table" and type(rawget(problem, "message")) == "string" then
		return rawget(problem, "message")
	end
	-- Its address says nothing to anybody.
	local text = tostring(problem)
	return if match(text, "^table: 0x") then "an error was raised that is a table without a `message`" else text
end

-- What `trace` made of an error, as a text with its place.
local function told_with_place(raised)
	if type(raised) ~= "table" then
		return cause(raised)
	end
	local text = described(raised.problem)
	return if raised.place then raised.place .. ": " .. text else text
end

-- Calls a function that may raise `error { code = …, message = …, data = … }`: its result, or those three and where. An
-- error that a method answered with is the `data` of another. Every other error is passed on.
local function conclude(worked, ...)
	if worked then
		return true, (...)
	end
	local raised = ...
	local problem = if type(raised) == "table" then raised.problem else nil
	if type(problem) == "table" then
		local place = raised.place
		local code, message = rawget(problem, "code"), rawget(problem, "message")
		if raisers[problem] then
			return false, nil, told(problem), problem, place
		elseif code ~= nil or message ~= nil then
			return false, code, message, rawget(problem, "data"), place
		end
	end
	error(told_with_place(raised), 0)
end

-- Where something happened is known only here, before the stack is gone.
local function trace(problem)
	if problem == native.no_memory then
		native.place()
	elseif type(problem) == "string" then
		if problem == "attempt to modify a readonly table" then
			local place = native.here()
			return if place then place .. ": " .. problem else problem
		end
	elseif type(problem) ~= "userdata" then
		return { problem = problem, place = native.here() }
	end
	return problem
end

function native.attempt(call, ...)
	return conclude(xpcall(call, trace, ...))
end

-- Calls a function whose every error is passed on.
local function pass(worked, ...)
	if worked then
		return ...
	end
	error(told_with_place((...)), 0)
end

function native.traced(call)
	return pass(xpcall(call, trace))
end

-- Takes a module that was being loaded into what is loaded.
local function settled(loaded, name, worked, ...)
	loaded[#loaded] = nil
	if not worked then
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
		return native.event(native.scope())
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
			return settled(loaded, name, pcall(chunk, name))
		elseif problem then
			error("cannot load `" .. name .. "`: " .. problem, 2)
		end
	end
	error("no module named `" .. tostring(name) .. "` in a " .. native.kind, 2)
end
