-- Each alert of a notification becomes grafana.firing or grafana.resolved.
local group = request.json
if type(group) ~= "table" or type(group.alerts) ~= "table" then
	error("the body is no notification of Grafana: it has no alerts")
end
local events = {}
for _, alert in ipairs(group.alerts) do
	local status = alert.status == "resolved" and "resolved" or "firing"
	local ended = status == "resolved" and tostring(alert.endsAt) or ""
	table.insert(events, {
		type = "grafana." .. status,
		id = table.concat({ tostring(alert.fingerprint), status, tostring(alert.startsAt), ended }, " "),
		payload = {
			status = status,
			labels = alert.labels,
			annotations = alert.annotations,
			values = alert.values,
			starts_at = alert.startsAt,
			ends_at = status == "resolved" and alert.endsAt or nil,
			url = alert.generatorURL,
			dashboard_url = alert.dashboardURL,
			panel_url = alert.panelURL,
			silence_url = alert.silenceURL,
			fingerprint = alert.fingerprint,
			receiver = group.receiver,
			org_id = group.orgId,
			title = group.title,
		},
	})
end
return events
