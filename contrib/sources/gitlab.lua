-- A webhook of GitLab becomes gitlab.KIND, or gitlab.KIND.ACTION where its object has an action.
local payload = request.json
if type(payload) ~= "table" then
	error("the body is no JSON object")
end
local kind = payload.object_kind or payload.event_name
if type(kind) ~= "string" then
	error("there is neither object_kind nor event_name")
end
local name = "gitlab." .. kind:gsub("[^%w_-]", "_")
local attributes = payload.object_attributes
if type(attributes) == "table" and type(attributes.action) == "string" then
	name = name .. "." .. attributes.action:gsub("[^%w_-]", "_")
end
return { type = name, payload = payload }
