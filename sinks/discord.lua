-- A Discord message with one embed: the event's type, its text or its fields, and its author.

local function cut(text, limit)
	if utf8.len(text) <= limit then
		return text
	end
	return string.sub(text, 1, utf8.offset(text, limit) - 1) .. "…"
end

local colours = { critical = 0xE01E5A, error = 0xE01E5A, warning = 0xECB22E, info = 0x36A64F }

local data = event.data
local said = data.text or data.message or data.summary

-- At most ten short fields, so that the embed stays under the 6000 characters that Discord accepts.
local fields = json.array({})
local names = {}
for name in pairs(data) do
	table.insert(names, name)
end
table.sort(names)
for _, name in ipairs(names) do
	local value = data[name]
	if #fields < 10 and name ~= "" and value ~= said and value ~= "" then
		local text = if type(value) == "string" then value else json.encode(value)
		table.insert(fields, { name = cut(name, 100), value = cut(text, 200), inline = #text <= 40 })
	end
end

return {
	username = values.username,
	embeds = {
		{
			title = cut(event.type, 256),
			description = if type(said) == "string" and said ~= "" then cut(said, 2000) else nil,
			color = colours[data.severity] or colours.info,
			timestamp = event.ts,
			fields = fields,
			footer = { text = cut("by " .. actor.username, 200) .. " · " .. event.id },
		},
	},
	-- Text of an event must not mention people.
	allowed_mentions = { parse = json.array({}) },
}
