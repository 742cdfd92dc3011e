-- A CloudEvent. `sequence` is the sink's gapless number, so that a receiver can see what it missed.

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
