-- HAProxy asks fairshare whether a request may pass: http-request lua.fairshare

local address = "http://127.0.0.1:9180/haproxy"
local timeout = 300 -- milliseconds for the whole question

-- Without an answer from fairshare the request passes. With false it is refused (503).
local fail_open = true

-- These are not sent on: they belong to one connection, or describe a body.
local omitted = {
	["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
	["keep-alive"] = true, ["te"] = true, ["trailer"] = true, ["expect"] = true, ["host"] = true,
	["x-forwarded-method"] = true, ["x-forwarded-uri"] = true, ["x-forwarded-host"] = true,
	["x-forwarded-for"] = true, ["x-forwarded-proto"] = true, ["proxy-connection"] = true,
}

local function refuse(txn, status, headers, body)
	local reply = txn:reply({ status = status })
	for name, values in pairs(headers) do
		name = string.lower(name)
		if not omitted[name] then
			for _, value in pairs(values) do
				reply:add_header(name, value)
			end
		end
	end
	if body ~= nil and body ~= "" then
		reply:set_body(body)
	end
	txn:done(reply)
end

core.register_action("fairshare", { "http-req" }, function(txn)
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		name = string.lower(name)
		if not omitted[name] then
			headers[name] = {}
			for i = 0, #values do
				if values[i] ~= nil then
					table.insert(headers[name], values[i])
				end
			end
		end
	end
	local host = txn.f:req_hdr("host")
	if host == nil or host == "" then
		host = "localhost" -- HTTP/1.0
	end
	headers["x-forwarded-method"] = { txn.f:method() }
	headers["x-forwarded-uri"] = { txn.f:pathq() }
	headers["x-forwarded-host"] = { host }
	headers["x-forwarded-for"] = { txn.f:src() }
	headers["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" }

	local answer = core.httpclient():get({ url = address, headers = headers, timeout = timeout })
	if answer ~= nil and answer.status == 204 then
		return
	end
	-- 0 is no answer; HAProxy itself makes 502, 503 and 504 if fairshare is down or slow.
	local from_fairshare = answer ~= nil and answer.headers ~= nil and answer.headers["cache-control"] ~= nil
		and answer.headers["date"] ~= nil
	if not from_fairshare then
		if fail_open then
			return
		end
		refuse(txn, 503, { ["retry-after"] = { "5" } }, "")
		return
	end
	refuse(txn, answer.status, answer.headers, answer.body)
end, 0)
