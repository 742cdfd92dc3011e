-- Each alert of a notification becomes grafana.firing or grafana.resolved.
local group = request.json
if type(group) ~= "table" or type(group.alerts) ~= "table" then
	error("the body is no notification of Grafana: it has no alerts")
end
-- A request raises at most 100 events. Of a larger group, and of one from which the sender left out alerts, the last event is
-- grafana.truncated.
local left_out = { firing = 0, resolved = 0 }
local by_sender = tonumber(group.truncatedAlerts) or 0
local is_cut = #group.alerts > 100 or by_sender > 0
local most = is_cut and 99 or 100
local events, ids = {}, {}
for n, alert in ipairs(group.alerts) do
	local status = alert.status == "resolved" and "resolved" or "firing"
	local ended = status == "resolved" and tostring(alert.endsAt) or ""
	local id = table.concat({ tostring(alert.fingerprint), status, tostring(alert.startsAt), ended }, " ")
	ids[n] = id
	if n > most then
		left_out[status] += 1
		continue
	end
	table.insert(events, {
		type = "grafana." .. status,
		id = id,
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
if is_cut then
	left_out.by_sender = by_sender > 0 and by_sender or nil
	table.insert(events, {
		type = "grafana.truncated",
		id = "truncated " .. crypto.sha256(`{group.groupKey}\n{by_sender}\n{table.concat(ids, "\n")}`),
		payload = {
			alerts = #group.alerts,
			raised = #events,
			left_out = left_out,
			receiver = group.receiver,
			group_key = group.groupKey,
			external_url = group.externalURL,
		},
	})
end
return events
