-- A Slack message of three blocks: a headline, the data of the event, and its origin.
-- A `text`, `message` or `summary` in the event's data is shown in place of the bare data.

local function cut(text, limit)
	if utf8.len(text) <= limit then
		return text
	end
	return string.sub(text, 1, utf8.offset(text, limit) - 1) .. "…"
end

-- Slack reads these three characters as markup.
local function escape(text)
	return (string.gsub(text, "[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" }))
end

local data = event.data
local said = data.text or data.message or data.summary
local shown
if type(said) == "string" and said ~= "" then
	-- Escaping makes at most five characters of one; a section holds 3000.
	shown = escape(cut(said, 600))
else
	shown = "```" .. escape(cut(json.encode(data), 590)) .. "```"
end

local origin = "by " .. actor.username
if space.name ~= nil and space.name ~= "" then
	origin = origin .. " in " .. space.name
end

return {
	-- Text for notifications and screen readers.
	text = cut(escape(event.type .. ": ") .. shown, 3000),
	blocks = {
		{ type = "header", text = { type = "plain_text", text = cut(event.type, 150) } },
		{ type = "section", text = { type = "mrkdwn", text = shown } },
		{
			type = "context",
			elements = { { type = "mrkdwn", text = cut(escape(origin), 1500) .. " · " .. event.ts .. " · `" .. event.id .. "`" } },
		},
	},
}
