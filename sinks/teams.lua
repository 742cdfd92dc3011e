-- A message with one Adaptive Card, in the format of the Workflows webhook: a title, the event's text, its fields as facts.

local function cut(text, limit)
	if utf8.len(text) <= limit then
		return text
	end
	return string.sub(text, 1, utf8.offset(text, limit) - 1) .. "…"
end

local colours = { critical = "Attention", error = "Attention", warning = "Warning", info = "Good" }

local data = event.data
local said = data.text or data.message or data.summary
local body = {
	{
		type = "TextBlock",
		text = event.type,
		size = "Large",
		weight = "Bolder",
		color = colours[data.severity] or "Default",
		wrap = true,
	},
}
if type(said) == "string" and said ~= "" then
	table.insert(body, { type = "TextBlock", text = cut(said, 4000), wrap = true })
end

-- A message has at most 28 KB; twenty short facts stay well below.
local facts = { { title = "Raised by", value = cut(actor.username, 200) }, { title = "At", value = event.ts } }
local names = {}
for name in pairs(data) do
	table.insert(names, name)
end
table.sort(names)
for _, name in ipairs(names) do
	local value = data[name]
	if #facts < 20 and value ~= said then
		local text = if type(value) == "string" then value else json.encode(value)
		table.insert(facts, { title = cut(name, 80), value = cut(text, 200) })
	end
end
table.insert(body, { type = "FactSet", facts = facts })
table.insert(body, { type = "TextBlock", text = event.id, size = "Small", isSubtle = true })

return {
	type = "message",
	attachments = {
		{
			contentType = "application/vnd.microsoft.card.adaptive",
			contentUrl = json.null,
			content = {
				["$schema"] = "http://adaptivecards.io/schemas/adaptive-card.json",
				type = "AdaptiveCard",
				version = "1.4",
				msteams = { width = "Full" },
				body = body,
			},
		},
	},
}
