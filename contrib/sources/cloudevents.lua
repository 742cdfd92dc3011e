-- A CloudEvent becomes cloudevents.TYPE.
local function to_event(attributes)
	for _, name in ipairs({ "specversion", "id", "source", "type" }) do
		if type(attributes[name]) ~= "string" or attributes[name] == "" then
			error("the attribute `" .. name .. "` is missing")
		end
	end
	local kind = attributes.type:gsub("[^%w_.-]", "_"):gsub("%.%.+", "."):gsub("^%.", ""):gsub("%.$", "")
	return { type = "cloudevents." .. kind, payload = attributes, id = attributes.source .. " " .. attributes.id }
end

local function decoded(value)
	return (value:gsub("%%(%x%x)", function(digits)
		return string.char(tonumber(digits, 16))
	end))
end

local kind = (request.headers["content-type"] or ""):lower()
if kind:find("application/cloudevents-batch+json", 1, true) == 1 then
	local events = {}
	for _, attributes in ipairs(request.json or error("the body is no JSON")) do
		table.insert(events, to_event(attributes))
	end
	return events
end
if kind:find("application/cloudevents+json", 1, true) == 1 then
	return to_event(request.json or error("the body is no JSON"))
end
if kind:find("application/cloudevents", 1, true) == 1 then
	error("only the JSON format of CloudEvents is understood, not " .. kind)
end
local attributes = {}
for name, value in pairs(request.headers) do
	local attribute = name:match("^ce%-(.+)$")
	if attribute ~= nil then
		attributes[attribute] = decoded(value)
	end
end
if next(attributes) == nil then
	error("this is no CloudEvent: it has neither ce- headers nor the content type application/cloudevents+json")
end
attributes.datacontenttype = request.headers["content-type"]
if request.json ~= nil and kind:find("json", 1, true) then
	attributes.data = request.json
elseif #request.body > 0 then
	if utf8.len(request.body) then
		attributes.data = request.body
	else
		attributes.data_base64 = crypto.base64_encode(request.body)
	end
end
return to_event(attributes)
