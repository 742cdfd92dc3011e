-- An event of Stripe becomes stripe.TYPE. Its id makes a repeated delivery harmless.
local event = request.json
if type(event) ~= "table" or type(event.type) ~= "string" then
	error("the body is no event of Stripe")
end
return { type = "stripe." .. event.type:gsub("[^%w_.-]", "_"), payload = event, id = event.id }
