-- `runtime.jsonrpc.method(local_name, "library.function")`: who handles what, for `svc run --json-rpc`. It is said once,
-- in the set-up script; that the handler is there is looked at then, so that no request has to find out.

local native = ...
local error, pcall, require, tostring, type = error, pcall, require, tostring, type
local match, rawget = string.match, rawget

local function handled(local_name, handler)
	if type(local_name) ~= "string" or local_name == "" then
		return "the local name must be a string"
	end
	local library, name
	if type(handler) == "string" then
		library, name = match(handler, "^(.+)%.([^.]+)$")
	end
	if library == nil then
		return "the handler of `" .. local_name .. '` must be a string such as "library.function"'
	end
	local worked, module = pcall(require, library)
	if not worked then
		return "the handler of `" .. local_name .. "` is not there: " .. tostring(module)
	end
	if type(module) ~= "table" or type(rawget(module, name)) ~= "function" then
		return "the library `" .. library .. "` has no function `" .. name .. "`, which is to handle `" .. local_name .. "`"
	end
	local noted = native.note(local_name, library, name)
	if noted == nil then
		return "this is for the set-up script of `svc run --json-rpc`"
	elseif not noted then
		return "`" .. local_name .. "` has a handler already"
	end
	return nil
end

-- What a request is answered with.
function native.handle(library, name, params)
	return require(library)[name](params)
end

local function method(local_name, handler)
	local problem = handled(local_name, handler)
	if problem then
		error("runtime.jsonrpc.method: " .. problem, 2)
	end
end

return { jsonrpc = table.freeze({ method = method }) }
