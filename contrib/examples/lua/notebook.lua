-- The notebook: one JSON object per line in a file.

local FILE = "notes.jsonl"

local notebook = {}

local function notes()
	local found = json.array {}
	if fs.exists(FILE) then
		for _, line in string.split(fs.read(FILE), "\n") do
			if line ~= "" then
				table.insert(found, json.decode(line))
			end
		end
	end
	return found
end

local function write(note)
	fs.append(FILE, json.encode(note) .. "\n")
end

function notebook.add(params)
	if type(params.text) ~= "string" or params.text == "" then
		error { code = -32602, message = "`text` must be what to write down", data = { field = "text" } }
	end
	write({ text = params.text })
	return #notes()
end

function notebook.list(params)
	local all = notes()
	local last = json.array {}
	for index = math.max(1, #all - (params.last or 100) + 1), #all do
		table.insert(last, all[index])
	end
	return last
end

function notebook.released(event)
	write({ text = "released " .. event.data.version })
end

return notebook
