-- Each alert of a group becomes alertmanager.firing or alertmanager.resolved.
local group = request.json
if type(group) ~= "table" or type(group.alerts) ~= "table" then
	error("the body is no notification of Alertmanager: it has no alerts")
end
local events = {}
for _, alert in ipairs(group.alerts) do
	local status = alert.status == "resolved" and "resolved" or "firing"
	local ended = status == "resolved" and tostring(alert.endsAt) or ""
	table.insert(events, {
		type = "alertmanager." .. status,
		id = table.concat({ tostring(alert.fingerprint), status, tostring(alert.startsAt), ended }, " "),
		payload = {
			status = status,
			labels = alert.labels,
			annotations = alert.annotations,
			starts_at = alert.startsAt,
			ends_at = status == "resolved" and alert.endsAt or nil,
			url = alert.generatorURL,
			fingerprint = alert.fingerprint,
			receiver = group.receiver,
			group_key = group.groupKey,
			external_url = group.externalURL,
		},
	})
end
return events
