-- A webhook of GitHub becomes github.EVENT, or github.EVENT.ACTION where it has an action. A ping raises nothing.
local event = request.headers["x-github-event"]
if event == nil then
	error("there is no X-GitHub-Event header")
end
if event == "ping" then
	return {}
end
local payload = request.json or (request.form and request.form.payload and json.decode(request.form.payload))
if type(payload) ~= "table" then
	error("the body is no JSON object: choose the content type application/json")
end
local name = "github." .. event:gsub("[^%w_-]", "_")
if type(payload.action) == "string" then
	name = name .. "." .. payload.action:gsub("[^%w_-]", "_")
end
return { type = name, payload = payload }
