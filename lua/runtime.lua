-- `runtime.jsonrpc.method(local_name, "library.function")` registers the handler of a method for `svc run --json-rpc`. The
-- set-up script calls it once per method; a missing handler is an error there and not in a request.

local native = ...
local error, pcall, require, tostring, type = error, pcall, require, tostring, type
local match, rawget = string.match, rawget

-- Registers a handler, or returns the message of what is wrong.
local function register(local_name, handler)
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
	local succeeded, module = pcall(require, library)
	if not succeeded then
		return "the handler of `" .. local_name .. "` is not there: " .. tostring(module)
	end
	if type(module) ~= "table" or type(rawget(module, name)) ~= "function" then
		return "the library `" .. library .. "` has no function `" .. name .. "`, which is to handle `" .. local_name .. "`"
	end
	local is_first = native.register_handler(local_name, library, name)
	if is_first == nil then
		return "this is for the set-up script of `svc run --json-rpc`"
	elseif not is_first then
		return "`" .. local_name .. "` has a handler already"
	end
	return nil
end

-- Calls the handler of a request and returns its result.
function native.handle(library, name, params)
	return require(library)[name](params)
end

local function method(local_name, handler)
	local problem = register(local_name, handler)
	if problem then
		error("runtime.jsonrpc.method: " .. problem, 2)
	end
end

return { jsonrpc = native.library("runtime.jsonrpc", { method = method }) }
