-- A CloudEvent. `sequence` is the gapless sequence number of the sink; a gap shows a receiver that it missed events.

return {
	specversion = "1.0",
	id = event.id,
	source = values.source,
	type = event.type,
	time = event.ts,
	subject = if space.name ~= nil and space.name ~= "" then space.name else nil,
	datacontenttype = "application/json",
	sequence = string.format("%020d", event.sequence),
	data = event.data,
}
