-- Posts the event to every URL and records the successful ones, in case the attempt must be repeated.

local body = json.encode({ event_id = event.id, event_type = event.type, event_ts = event.ts, data = event.data })
local headers = { ["Content-Type"] = "application/json", ["X-Service-Event-Id"] = event.id }
if values.secret ~= "" then
	headers["X-Service-Signature"] = "sha256=" .. crypto.hmac_sha256(values.secret, body)
end

local key = "fan-out:" .. event.id
local done = kv.get(key) or {}
local failures = {}

for _, url in ipairs(values.urls) do
	if not done[url] then
		local worked, response = pcall(http.request, {
			method = "POST",
			url = url,
			headers = headers,
			body = body,
			timeout = values.timeout,
		})
		if not worked then
			table.insert(failures, tostring(response))
		elseif response.status < 200 or response.status > 299 then
			table.insert(failures, url .. ": HTTP " .. response.status)
		else
			done[url] = true
			-- Kept for a day, which is longer than the longest wait for an attempt.
			kv.set(key, done, 86400)
		end
	end
end

if #failures > 0 then
	error(table.concat(failures, "; "), 0)
end
kv.delete(key)
