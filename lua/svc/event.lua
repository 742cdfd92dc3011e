-- `local event = require "svc.event"`: the event a script runs for.
--
-- The `get_` functions take the name of a field of the event's data, or a path of names separated by dots. They return
-- `default` (or nil) if there is no such field or its value has another type.

local gmatch, type, tonumber, getmetatable = string.gmatch, type, tonumber, getmetatable
local floor = math.floor

local function field(data, name)
	local value = data[name]
	if value ~= nil or type(name) ~= "string" then
		return value
	end
	value = data
	for part in gmatch(name, "[^.]+") do
		if type(value) ~= "table" then
			return nil
		end
		local inner = value[part]
		if inner == nil then
			inner = value[tonumber(part)]
		end
		value = inner
	end
	return value
end

local function is_integer(value)
	return type(value) == "integer" or type(value) == "number" and floor(value) == value and value - value == 0
end

local function is_list(value)
	return type(value) == "table" and getmetatable(value) == "array"
end

local function is_dict(value)
	return type(value) == "table" and getmetatable(value) ~= "array"
end

return function(scope)
	local event, space, actor, custom = scope.event, scope.space, scope.actor, scope.custom

	local function getter(is_right)
		return function(name, default)
			local value = field(event.data, name)
			if is_right(value) then
				return value
			end
			return default
		end
	end

	return {
		id = function()
			return event.id
		end,
		type = function()
			return event.type
		end,
		ts = function()
			return event.ts
		end,
		space = function()
			return space
		end,
		space_urls = function()
			return space.urls
		end,
		actor = function()
			return actor
		end,
		custom = function()
			return custom
		end,
		missed = function()
			return event.missed
		end,
		replay = function()
			return event.replay
		end,
		get_string = getter(function(value)
			return type(value) == "string"
		end),
		get_int = getter(is_integer),
		get_bool = getter(function(value)
			return type(value) == "boolean"
		end),
		get_list = getter(is_list),
		get_dict = getter(is_dict),
	}
end
