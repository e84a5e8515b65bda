-- Asks fairshare auth before each request, for HAProxy (haproxy.cfg of this
-- folder) and Apache (apache.conf), which have no such function of their own.

local address, port = "127.0.0.1", 9180 -- of fairshare auth
local fail_open = true -- false: without an answer from fairshare the client gets 503
local patience = 0.3   -- seconds without an answer

-- Headers that are not sent: of the connection and the body, and what a client
-- could send under the names of the question.
local own = {
	["connection"] = true, ["content-length"] = true, ["expect"] = true, ["keep-alive"] = true,
	["proxy-connection"] = true, ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true,
	["upgrade"] = true, ["host"] = true, ["fairshare-answer"] = true, ["x-original-method"] = true,
	["x-original-uri"] = true, ["x-original-url"] = true, ["x-forwarded-method"] = true,
	["x-forwarded-uri"] = true, ["x-forwarded-host"] = true, ["x-forwarded-for"] = true,
	["x-forwarded-proto"] = true, ["fairshare-reference"] = true,
}

-- answer reads the answer: a table with its status, headers and body, or nil.
local function answer(socket)
	local status = (socket:receive("*l") or ""):match("^HTTP/1%.[01] (%d%d%d)")
	if not status then
		return nil
	end
	local got, length = {status = tonumber(status), headers = {}, body = ""}, nil
	while true do
		local line = (socket:receive("*l") or "\0"):gsub("\r$", "")
		if line == "" then
			break
		end
		local name, value = line:match("^([^:%c]+):%s*(.*)$")
		if not name then
			return nil
		end
		local lower = name:lower()
		if lower == "content-length" then
			length = tonumber(value)
		elseif lower ~= "connection" and lower ~= "date" then
			got.headers[name] = got.headers[name] or {}
			table.insert(got.headers[name], value)
		end
	end
	if got.status ~= 204 and length and length > 0 then
		got.body = socket:receive(length)
		if not got.body then
			return nil
		end
	end
	return got
end

-- ask returns what the client gets, or nil if its request may pass, and then its
-- reference for the log. headers are lines; socket is not connected yet.
local function ask(socket, method, target, host, client, tls, headers)
	local question = {
		"GET /caddy HTTP/1.0", "Host: " .. host, "X-Forwarded-Method: " .. method,
		"X-Forwarded-Uri: " .. target, "X-Forwarded-Host: " .. host, "X-Forwarded-For: " .. client,
		"X-Forwarded-Proto: " .. (tls and "https" or "http"),
		table.concat(headers, "\r\n") .. (#headers > 0 and "\r\n" or ""), "",
	}
	socket:settimeout(patience)
	local got
	if socket:connect(address, port) and socket:send(table.concat(question, "\r\n")) then
		got = answer(socket)
	end
	socket:close()
	if not got and not fail_open then
		got = {status = 503, headers = {["Retry-After"] = {"5"}}, body = "Please try again soon.\n"}
	end
	if not got then
		return nil
	elseif got.status == 204 then
		return nil, (got.headers["Fairshare-Reference"] or {})[1]
	end
	if method == "HEAD" then
		got.body = ""
	end
	return got
end

if core then -- HAProxy: http-request lua.fairshare
	core.register_action("fairshare", {"http-req"}, function(txn)
		local headers = {}
		for name, values in pairs(txn.http:req_get_headers()) do
			for _, value in pairs(own[name] and {} or values) do
				headers[#headers + 1] = name .. ": " .. value
			end
		end
		local got, reference = ask(core.tcp(), txn.sf:method(), txn.sf:pathq(), txn.sf:req_fhdr("host"), txn.sf:src(),
			txn.sf:ssl_fc() == "1", headers)
		if reference then
			txn:set_var("txn.fairshare_reference", reference)
		end
		if not got then
			return
		end
		local reply = txn:reply()
		reply:set_status(got.status)
		for name, values in pairs(got.headers) do
			for _, value in ipairs(values) do
				reply:add_header(name, value)
			end
		end
		reply:set_body(got.body)
		txn:done(reply)
	end)
	return
end

-- Apache: LuaHookAccessChecker
local luasocket = require "socket"

function check(r)
	if not r.is_initial_req then -- a part of a request that was judged
		return apache2.DECLINED
	end
	local headers = {}
	for name, value in pairs(r:headers_in_table()) do
		if not own[name:lower()] then
			headers[#headers + 1] = name .. ": " .. value
		end
	end
	local host = r.headers_in["Host"] or r.hostname or ""
	local got, reference = ask(luasocket.tcp(), r.method, r.unparsed_uri, host, r.useragent_ip, r.is_https, headers)
	if reference then
		r.notes["fairshare_reference"] = reference
	end
	if not got then
		return apache2.DECLINED
	end
	r.status = got.status
	for name, values in pairs(got.headers) do
		if name:lower() == "content-type" then
			r.content_type = values[1]
		else
			r.err_headers_out[name] = table.concat(values, ", ")
		end
	end
	r:write(got.body)
	return apache2.DONE
end
