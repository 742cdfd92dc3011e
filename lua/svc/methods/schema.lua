-- `local s = require "svc.methods.schema"`: builders of JSON Schema.
--
--     s.object { query = s.string { min_length = 1 }, limit = s.optional(s.integer { minimum = 1 }, 10) }
--
-- Every builder takes `description`, `default`, `enum` and `extra`, which has further JSON Schema keywords under their
-- own names; an option given directly overrides it. A schema is a table, and a hand-written one is accepted wherever a
-- built one is. Misuse is an error on the line of the script that calls the builder.

local array, floor, huge, sort = json.array, math.floor, math.huge, table.sort
local error, next, pairs, setmetatable, tostring, type = error, next, pairs, setmetatable, tostring, type

-- The tables built here, to distinguish schemas from tables of options; and the wrappers that `optional` returned.
local built = setmetatable({}, { __mode = "k" })
local loose = setmetatable({}, { __mode = "k" })

local function shown(value)
	local kind = type(value)
	if kind == "string" then
		return '"' .. value .. '"'
	elseif kind == "number" or kind == "boolean" then
		return tostring(value)
	end
	return "a " .. kind
end

local function is_list(value)
	return type(value) == "table" and (#value > 0 or next(value) == nil)
end

local function is_empty(value)
	return type(value) == "table" and next(value) == nil
end

local function is_schema(value)
	return type(value) == "table" and #value == 0
end

-- The checks of keyword values. Each returns nil, or a description of the value it expects.
local function text(value)
	return if type(value) == "string" then nil else "a string"
end

local function count(value)
	local whole = type(value) == "number" and value >= 0 and floor(value) == value and value < huge
	return if whole then nil else "a whole number from 0"
end

local function number(value)
	local finite = type(value) == "integer" or type(value) == "number" and value - value == 0
	return if finite then nil else "a number"
end

local function list(value)
	return if is_list(value) then nil else "a list"
end

local function anything()
	return nil
end

local function keywords(value)
	if not is_schema(value) then
		return "a table of JSON Schema keywords"
	end
	for key in pairs(value) do
		if type(key) ~= "string" then
			return "a table of JSON Schema keywords"
		end
	end
	return nil
end

local common = {
	description = { "description", text },
	default = { "default", anything },
	enum = { "enum", list },
	extra = { "extra", keywords },
}

local function with_common(own)
	for name, keyword in pairs(common) do
		own[name] = keyword
	end
	return own
end

local function schema_fault(field, value)
	if loose[value] then
		return "`" .. field .. "` cannot be optional: only a property of an object can"
	elseif not is_schema(value) then
		return "`" .. field .. "` is a schema, not " .. shown(value)
	end
	return nil
end

-- Returns a schema of the fixed keywords, over the options, over `extra`, over the defaults; or nil and the message of what
-- is wrong.
local function joined(builder, known, options, fixed, otherwise)
	if options == nil then
		options = {}
	elseif type(options) ~= "table" then
		return nil, builder .. " takes a table of keywords, not " .. shown(options)
	elseif built[options] or loose[options] then
		return nil, builder .. " takes a table of keywords, not a schema"
	end
	for name, value in pairs(options) do
		local keyword = known[name]
		if keyword == nil then
			return nil, "`" .. tostring(name) .. "` is no keyword of " .. builder
		end
		local wanted = keyword[2](value)
		if wanted then
			return nil, "`" .. name .. "` is " .. wanted .. ", not " .. shown(value)
		end
	end
	local schema = otherwise or {}
	for name, value in pairs(options.extra or {}) do
		schema[name] = value
	end
	for name, value in pairs(options) do
		if name ~= "extra" then
			schema[known[name][1]] = value
		end
	end
	for name, value in pairs(fixed) do
		schema[name] = value
	end
	-- An empty table is ambiguous in Lua; here it can only be a list.
	if is_empty(schema.enum) then
		schema.enum = array({})
	end
	if schema.type == "array" and is_empty(schema.default) then
		schema.default = array({})
	end
	built[schema] = true
	return schema
end

local s = setmetatable({}, {
	__index = function(s, name)
		local names = {}
		for builder in next, s do
			names[#names + 1] = builder
		end
		sort(names)
		error("svc.methods.schema has no `" .. tostring(name) .. "`: it has " .. table.concat(names, ", "), 2)
	end,
	__metatable = "library",
})

for kind, own in
	pairs({
		string = {
			format = { "format", text },
			min_length = { "minLength", count },
			max_length = { "maxLength", count },
			pattern = { "pattern", text },
		},
		integer = { minimum = { "minimum", number }, maximum = { "maximum", number } },
		number = { minimum = { "minimum", number }, maximum = { "maximum", number } },
		boolean = {},
		null = {},
	})
do
	local known = with_common(own)
	s[kind] = function(options)
		local schema, fault = joined("s." .. kind, known, options, { type = kind })
		if fault then
			error(fault, 2)
		end
		return schema
	end
end

local of_array = with_common({ min_items = { "minItems", count }, max_items = { "maxItems", count } })

function s.array(items, options)
	local fault = schema_fault("items", items)
	if fault then
		error(fault, 2)
	end
	local schema, misuse = joined("s.array", of_array, options, { type = "array", items = items })
	if misuse then
		error(misuse, 2)
	end
	return schema
end

local of_object = with_common({
	additional_properties = {
		"additionalProperties",
		function(value)
			return if type(value) == "boolean" or is_schema(value) and not loose[value] then nil else "true, false or a schema"
		end,
	},
})

-- Returns true if a field with a keyword's name is a property of that name. `default` and `extra` may have tables as values, so
-- there only a built schema counts as a property.
local function is_property(name, value)
	if type(value) ~= "table" or name == "additional_properties" then
		return false
	elseif built[value] or loose[value] then
		return true
	elseif name == "enum" then
		return not is_list(value)
	end
	return name == "description"
end

-- Each property is required unless it is optional; others are not allowed unless `additional_properties` allows them.
function s.object(fields)
	if fields == nil then
		fields = {}
	elseif type(fields) ~= "table" or built[fields] or loose[fields] then
		error("s.object takes a table of properties, not " .. (if type(fields) == "table" then "a schema" else shown(fields)), 2)
	end
	local options, properties, required = {}, {}, {}
	for name, value in pairs(fields) do
		if type(name) ~= "string" then
			error("a property of s.object needs a name: write name = " .. shown(value), 2)
		elseif of_object[name] and not is_property(name, value) then
			options[name] = value
		elseif loose[value] then
			properties[name] = loose[value]
		elseif is_schema(value) then
			properties[name] = value
			required[#required + 1] = name
		else
			local needs = "` is no keyword of s.object, and as a property it needs a schema, not "
			error("`" .. name .. needs .. shown(value), 2)
		end
	end
	sort(required)
	local fixed = { type = "object" }
	if next(properties) ~= nil then
		fixed.properties = properties
	end
	if #required > 0 then
		fixed.required = required
	end
	local otherwise = { properties = {}, additionalProperties = false }
	local schema, fault = joined("s.object", of_object, options, fixed, otherwise)
	if fault then
		error(fault, 2)
	end
	return schema
end

local of_optional = with_common({})

-- A property that may be absent, with its default.
function s.optional(schema, default, options)
	local fault = schema_fault("schema", schema)
	if fault then
		error(fault, 2)
	end
	local copy = {}
	for name, value in pairs(schema) do
		copy[name] = value
	end
	local given, misuse = joined("s.optional", of_optional, options, { default = default }, copy)
	if misuse then
		error(misuse, 2)
	end
	local wrapped = setmetatable({}, { __metatable = "optional" })
	loose[wrapped] = given
	return wrapped
end

return s
