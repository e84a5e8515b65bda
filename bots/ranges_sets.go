package bots

// A rangeDef defines a set of addresses of Ranges. The snapshot contains most
// sets; the others are unknown until their URLs have answered.
type rangeDef struct {
	name string
	urls []string // where its operator publishes it, as text, CSV or JSON; nil: nowhere

	// whole means that the operator declares the set complete. An address outside
	// then proves forgery, unless it is in one of the sets in near: clouds that the
	// operator rents, where the bot may run before its list is updated, and its
	// former networks.
	whole bool
	near  []string
}

const googleRanges = "https://developers.google.com/static/crawling/ipranges/"

var rangeDefs = []rangeDef{
	{name: "googlebot", whole: true, near: []string{"google"}, urls: []string{googleRanges + "common-crawlers.json"}},
	{name: "google-special", whole: true, near: []string{"google"},
		urls: []string{googleRanges + "special-crawlers.json"}},
	// The set is not whole: some feed readers have "like FeedFetcher-Google" in
	// their user agents.
	{name: "google-user-triggered", near: []string{"google"}, urls: []string{
		googleRanges + "user-triggered-fetchers.json", googleRanges + "user-triggered-fetchers-google.json",
		googleRanges + "user-triggered-agents.json"}},
	{name: "bingbot", whole: true, near: []string{"microsoft"},
		urls: []string{"https://www.bing.com/toolbox/bingbot.json"}},
	{name: "applebot", whole: true, near: []string{"apple"},
		urls: []string{"https://search.developer.apple.com/applebot.json"}},
	{name: "duckduckbot", whole: true, near: []string{"microsoft", "amazon", "former"},
		urls: []string{"https://duckduckgo.com/duckduckbot.json"}},
	{name: "duckassistbot", whole: true, near: []string{"microsoft"},
		urls: []string{"https://duckduckgo.com/duckassistbot.json"}},
	{name: "qwantbot", whole: true,
		urls: []string{"https://help.qwant.com/wp-content/uploads/sites/latest/qwantbot.json"}},
	{name: "mojeekbot", whole: true, urls: []string{"https://www.mojeek.com/mojeekbot.json"}},
	{name: "yandexbot", near: []string{"yandex"}}, // published as a page of HTML
	{name: "ccbot", whole: true, near: []string{"amazon"}, urls: []string{"https://index.commoncrawl.org/ccbot.json"}},
	{name: "gptbot", whole: true, near: []string{"microsoft"}, urls: []string{"https://openai.com/gptbot.json"}},
	{name: "oai-searchbot", whole: true, near: []string{"microsoft"},
		urls: []string{"https://openai.com/searchbot.json"}},
	{name: "chatgpt-user", whole: true, near: []string{"microsoft"},
		urls: []string{"https://openai.com/chatgpt-user.json"}},
	{name: "claudebot", whole: true, near: []string{"amazon", "google"},
		urls: []string{"https://claude.com/crawling/bots.json"}},
	{name: "perplexitybot", whole: true, near: []string{"amazon"},
		urls: []string{"https://www.perplexity.ai/perplexitybot.json"}},
	{name: "perplexity-user", whole: true, near: []string{"amazon"},
		urls: []string{"https://www.perplexity.ai/perplexity-user.json"}},
	{name: "mistralai-user", whole: true, urls: []string{"https://mistral.ai/mistralai-user-ips.json"}},
	{name: "ahrefsbot", whole: true, near: []string{"ovh", "former"},
		urls: []string{"https://api.ahrefs.com/v3/public/crawler-ip-ranges"}},
	{name: "semrush", near: []string{"former"}},

	// People's phones that create a preview send facebookexternalhit and Twitterbot,
	// too: an address outside proves nothing.
	{name: "facebookbot", near: []string{"facebook"}, urls: []string{"https://www.facebook.com/peering/geofeed"}},
	{name: "twitterbot"},
	{name: "telegrambot", urls: []string{"https://core.telegram.org/resources/cidr.txt"}},

	// Monitors and scanners change their addresses often.
	{name: "uptimerobot", urls: []string{"https://uptimerobot.com/inc/files/ips/IPv4.txt",
		"https://uptimerobot.com/inc/files/ips/IPv6.txt"}},
	{name: "pingdom", urls: []string{"https://my.pingdom.com/probes/ipv4", "https://my.pingdom.com/probes/ipv6"}},
	{name: "statuscake", urls: []string{"https://app.statuscake.com/Workfloor/Locations.php?format=json"}},
	{name: "betterstack", urls: []string{"https://uptime.betterstack.com/ips-by-cluster.json"}},
	{name: "datadog-synthetics", urls: []string{"https://ip-ranges.datadoghq.com/synthetics.json"}},
	{name: "stripe-webhooks", urls: []string{"https://stripe.com/files/ips/ips_webhooks.json"}},
	{name: "webpagetest"},
	{name: "shodan"},
	{name: "censys"},

	// Wider networks.
	{name: "google"}, {name: "microsoft"}, {name: "amazon"}, {name: "facebook"}, {name: "apple"}, {name: "yandex"},
	{name: "ovh"}, {name: "former"},
}

// maxSets is how many sets the bits of a rangeMask can name.
const maxSets = 64
