-- Who answers what: a function of `notebook.lua`.

for _, name in { "add", "list", "released" } do
	runtime.jsonrpc.method(name, "notebook." .. name)
end
