-- Passes an event on unless one like it went by within the window.

local accessors = require "svc.event"

local likeness = accessors.get_string(values.field) or json.encode(event.data)
local key = "dedup:" .. crypto.sha256(event.type .. " " .. likeness)

-- The first to add the key wins. A second attempt for the same event finds its own id there and goes on.
if not kv.add(key, event.id, values.window) and kv.get(key) ~= event.id then
	return svc.skip("one like it was passed on within " .. values.window .. " s")
end

local response = http.request({
	url = values.url,
	headers = { ["X-Service-Event-Id"] = event.id },
	json = { event_id = event.id, event_type = event.type, event_ts = event.ts, data = event.data },
})
if response.status < 200 or response.status > 299 then
	error("HTTP " .. response.status, 0)
end
