-- The body of Opsgenie's "create alert". Details are strings there, so other values are encoded as JSON.

local function cut(text, limit)
	if utf8.len(text) <= limit then
		return text
	end
	return string.sub(text, 1, utf8.offset(text, limit) - 1) .. "…"
end

local data = event.data

local function text(...)
	for _, name in ipairs({ ... }) do
		local value = data[name]
		if type(value) == "string" and value ~= "" then
			return value
		end
	end
	return nil
end

-- Opsgenie accepts 8000 characters of details, names included.
local details, room = { event_id = event.id, event_type = event.type, event_ts = event.ts }, 7000
local names = {}
for name in pairs(data) do
	table.insert(names, name)
end
table.sort(names)
for _, name in ipairs(names) do
	local value = data[name]
	local shown = cut(if type(value) == "string" then value else json.encode(value), 1000)
	room -= utf8.len(name) + utf8.len(shown)
	if room >= 0 then
		details[name] = shown
	end
end

local priorities = { critical = "P1", error = "P2", warning = "P3", info = "P5" }
local known = { P1 = true, P2 = true, P3 = true, P4 = true, P5 = true }
local named = if space.name ~= nil and space.name ~= "" then space.name else nil

return {
	message = cut(text("summary", "message", "text") or event.type, 130),
	alias = cut(text("alias", "key", "dedup_key") or event.type .. (if named then ":" .. named else ""), 512),
	description = cut(text("description", "message", "text") or json.encode(data), 15000),
	priority = if known[data.priority] then data.priority else priorities[data.severity] or values.priority,
	source = cut("svc " .. event.type, 100),
	entity = if named then cut(named, 512) else nil,
	user = cut(actor.username, 100),
	tags = json.array(values.tags),
	details = details,
}
