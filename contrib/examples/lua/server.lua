-- Maps each method to a function of `notebook.lua`.

for _, name in { "add", "list", "released" } do
	runtime.jsonrpc.method(name, "notebook." .. name)
end
