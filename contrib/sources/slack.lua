-- The challenge is answered. An event becomes slack.TYPE, a slash command slack.command, an interaction slack.TYPE.
local function named(kind)
	return "slack." .. tostring(kind):gsub("[^%w_-]", "_")
end
local body = request.json
if type(body) == "table" then
	if body.type == "url_verification" then
		return { response = { body = body.challenge } }
	end
	if body.type == "event_callback" and type(body.event) == "table" then
		return { type = named(body.event.type), payload = body, id = body.event_id }
	end
	return { type = named(body.type), payload = body }
end
local form = request.form
if form == nil then
	error("the body is neither JSON nor a form")
end
-- Slack shows the body of the response to the user, so it is empty.
if form.payload ~= nil then
	local interaction = json.decode(form.payload)
	return { events = { type = named(interaction.type), payload = interaction }, response = {} }
end
return { events = { type = "slack.command", payload = form }, response = {} }
