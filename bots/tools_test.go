package bots_test

import (
	"slices"
	"testing"

	"fairshare/bots"
)

// Tools are recognised by their default user agents, and by user agents that
// contain the tool's name. Those marked as seen are from public access logs or
// from the tool's own source; the others are plausible spellings.
func TestToolsAreRecognisedByName(t *testing.T) {
	const tool, archive, scanner, library = "tool", "archive", "scanner", "library"
	const exploit = "exploit" // and scanner
	for _, c := range []struct{ userAgent, name, category string }{
		{"ApacheBench/2.3", "apache-bench", tool},
		{"hey/0.0.1", "hey", tool},
		{"Mozilla/5.0 (pc-x86_64-linux-gnu) Siege/4.0.4", "siege", tool},
		{"JoeDog/1.00 [en] (X11; I; Siege 2.70)", "siege", tool},
		{"wrk/4.2.0", "wrk", tool},
		{"k6/0.49.0 (https://k6.io/)", "k6", tool},
		{"Grafana k6/1.0.0", "k6", tool},
		{"h2load nghttp2/1.59.0", "h2load", tool},
		{"oha/1.4.5", "oha", tool},
		{"Artillery (https://artillery.io)", "artillery", tool},
		{"gatling/3.10", "gatling", tool},
		{"Apache JMeter/5.6", "jmeter", tool},
		{"PostmanRuntime/7.36.1", "postman", tool},
		{"insomnia/8.6.0", "postman", tool},

		{"Mozilla/4.5 (compatible; HTTrack 3.0x; Windows 98)", "httrack", archive},
		{"Mozilla/5.0 (compatible; WinHTTrack 3.49)", "httrack", archive},
		{"katana", "katana", scanner},
		{"Katana/1.1.0", "katana", scanner},
		{"Mozilla/5.0 (compatible; katana; +https://github.com/projectdiscovery/katana)", "katana", scanner},
		{"gospider/1.1", "gospider", scanner},
		{"Scrapy/2.11.0 (+https://scrapy.org)", "scrapy", library},
		{"python-httpx/0.27.0", "python", library},
		{"python-requests/2.31.0", "python", library},

		// Seen.
		{"httpx - Open-source project (github.com/projectdiscovery/httpx)", "pd-httpx", exploit},
		{"Mozilla/5.0 (Hydra)", "hydra", exploit},
		{"I'm not Mozilla, I'm Ming Mong", "medusa", exploit},
		{"DirBuster-1.0-RC1 (http://www.owasp.org/index.php/Category:OWASP_DirBuster_Project)", "dirbuster", exploit},
		{"Fuzz Faster U Fool v2.1.0-dev", "ffuf", exploit},
		{"Fuzz Faster U Fool v1.0-rc1", "ffuf", exploit},
		{"WPScan v2.9 (http://wpscan.org)", "wpscan", exploit},
		{"WPScan v3.8.22 (https://wpscan.org/)", "wpscan", exploit},
		{"Mozilla/5.00 (Nikto/2.1.5) (Evasions:None) (Test:Port Check)", "nikto", exploit},
		{"Mozilla/5.0 (X11; Linux x86_64) Nikto/2.5.0 (Evasions:None) (Test:Port Check)", "nikto", exploit},
		{"sqlmap/1.7.8#stable (https://sqlmap.org)", "sqlmap", exploit},
		{"sqlmap/1.0-dev-nongit-201612050a8c (http://sqlmap.org)", "sqlmap", exploit},
		{"Nuclei - Open-source project (github.com/projectdiscovery/nuclei)", "nuclei", exploit},
		{"masscan/1.0 (https://github.com/robertdavidgraham/masscan)", "masscan", exploit},
		{"ivre-masscan/1.3 https://github.com/robertdavidgraham/", "masscan", exploit},
		{"Mozilla/5.0 zgrab/0.x", "zgrab", exploit},
		{"Mozilla/5.0 (compatible; Nmap Scripting Engine; https://nmap.org/book/nse.html)", "nmap", exploit},
		{"gobuster/3.6", "gobuster", exploit},

		// Spellings of the name.
		{"Mozilla/5.0 (compatible; github.com/projectdiscovery/httpx)", "pd-httpx", exploit},
		{"Mozilla/4.0 (Hydra)", "hydra", exploit},
		{"Mozilla/5.0 (Hydra Proxy)", "hydra", exploit},
		{"ZAP", "zap", exploit},
		{"ZAP/2.14.0", "zap", exploit},
		{"Mozilla/5.0 (ZAP)", "zap", exploit},
		{"Mozilla/5.0 (compatible; OWASP ZAP 2.14)", "zap", exploit},
		{"Mozilla/5.0 zaproxy", "zap", exploit},
		{"Burp Suite Professional", "burp", exploit},
		{"BurpSuite/2024.1", "burp", exploit},
		{"dirsearch", "dirsearch", exploit},
		{"Mozilla/5.0 (dirsearch/0.4.3)", "dirsearch", exploit},
		{"ffuf/2.1", "ffuf", exploit},
		{"Wfuzz/3.1.0", "wfuzz", exploit},
		{"feroxbuster/2.10.1", "feroxbuster", exploit},
		{"WPScan v3.8.25 (https://wpscan.com/wordpress-security-scanner)", "wpscan", exploit},
		{"Mozilla/5.00 (Nikto/2.1.6) (Evasions:None) (Test:000003)", "nikto", exploit},
		{"masscan/1.3 (https://github.com/robertdavidgraham/masscan)", "masscan", exploit},
		{"WhatWeb/0.5.5", "whatweb", exploit},
		{"Wapiti/3.1 (https://wapiti-scanner.github.io)", "wapiti", exploit},
		{"commix/3.9 (https://commixproject.com)", "commix", exploit},
		{"OWASP JoomScan Project", "joomscan", exploit},
	} {
		bot, _ := bots.BuiltIn().Recognise(c.userAgent)
		switch {
		case bot == nil:
			t.Errorf("%q: no bot, want %s", c.userAgent, c.name)
		case bot.Name != c.name || !slices.Contains(bot.Categories, c.category):
			t.Errorf("%q: %s %v, want %s with %s", c.userAgent, bot.Name, bot.Categories, c.name, c.category)
		}
	}
}

// User agents that contain a tool's name as a part are not that tool.
func TestNamesThatContainAToolsNameAreNotTools(t *testing.T) {
	for _, userAgent := range []string{
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
		"Mozilla/5.0 (Linux; Android 13; HYDRA 5) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (Linux; Android 12; ZAP Phone) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (Linux; Android 9; Katana) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (Linux; Android 13; Medusa) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 [FBAN/FBIOS;FBAV/468.0;FBBV/1;FBDV/iPhone14,2;FBMD/iPhone;FBSN/iOS;FBSV/17.5;FBSS/3;FBID/phone;FBLC/en_US;FBOP/5;com.facebook.katana]",
		"[FBAN/FB4A;FBAV/468.0.0.46.76;FBPN/com.facebook.katana;FBLC/en_US]",
	} {
		if bot, _ := bots.BuiltIn().Recognise(userAgent); bot != nil &&
			(slices.Contains(bot.Categories, "exploit") || bot.Name == "katana") {
			t.Errorf("%q is recognized as %s", userAgent, bot.Name)
		}
	}
	if bot, _ := bots.BuiltIn().Recognise("Zapier/1.0"); bot == nil || bot.Name != "zapier" {
		t.Errorf("Zapier is recognized as %v", bot)
	}
}
