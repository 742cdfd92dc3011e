-- An event of PagerDuty's Events API v2: `trigger` with a payload, or `resolve` of the same dedup_key.

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

local subject, last = string.match(event.type, "^(.*)%.([^.]+)$")
local in_space = string.sub(event.type, 1, 6) == "space."
local key = text("dedup_key", "key") or (if in_space then "space:" .. space.id else subject or event.type)

local over = { resolved = true, recovered = true, ok = true, healthy = true }
if over[last] or over[data.status] then
	return { routing_key = values.routing_key, event_action = "resolve", dedup_key = cut(key, 255) }
end

local severities = { critical = "critical", error = "error", warning = "warning", info = "info" }
local named = if space.name ~= nil and space.name ~= "" then space.name else nil

return {
	routing_key = values.routing_key,
	event_action = "trigger",
	dedup_key = cut(key, 255),
	payload = {
		summary = cut(text("summary", "message", "text") or event.type .. (if named then " in " .. named else ""), 1024),
		source = cut(text("source", "host") or named or actor.username, 1024),
		severity = severities[data.severity] or values.severity,
		timestamp = event.ts,
		component = text("component"),
		group = text("group"),
		class = event.type,
		custom_details = data,
	},
	client = "svc",
}
