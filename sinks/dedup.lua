-- Forwards an event unless an equal one was forwarded within the window.

local accessors = require "svc.event"

local identity = accessors.get_string(values.field) or json.encode(event.data)
local key = "dedup:" .. crypto.sha256(event.type .. " " .. identity)

-- The first event adds the key. A second attempt of the same event finds its own id there and continues.
if not kv.add(key, event.id, values.window) and kv.get(key) ~= event.id then
	return svc.skip("an equal event was forwarded within " .. values.window .. " s")
end

local response = http.request({
	url = values.url,
	headers = { ["X-Service-Event-Id"] = event.id },
	json = { event_id = event.id, event_type = event.type, event_ts = event.ts, data = event.data },
})
if response.status < 200 or response.status > 299 then
	error("HTTP " .. response.status, 0)
end
