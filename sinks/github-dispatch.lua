-- A repository_dispatch. GitHub accepts an event_type of 100 characters and a client_payload of ten names and 64 KB.

local data = event.data
if #json.encode(data) > 60000 then
	-- The workflow can fetch the event by its id.
	data = json.null
end

return {
	event_type = string.sub(event.type, 1, 100),
	client_payload = {
		event_id = event.id,
		event_type = event.type,
		event_ts = event.ts,
		sequence = event.sequence,
		actor = actor,
		space = { id = space.id, name = space.name },
		data = data,
	},
}
