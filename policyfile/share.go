package policyfile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// A Share sets how a busy upstream is shared among clients.
type Share struct {
	Capacity int                 // requests that the upstream handles at once; 0: estimated from latency
	Min, Max int                 // bounds of an estimated capacity
	By       []fairshare.KeyPart // levels that share, the widest first
	Wait     time.Duration       // longest wait for a turn; 0 means that no request waits
	Queue    int                 // largest number of waiting requests
	Ages     bool                // clients that are known for longer come first; see share.Options.Ages
	Default  bool                // the file does not mention it: see File.ServedShare

	// EachMember says that each of the programs that count together has an upstream of its own.
	EachMember bool

	Labels, Bots map[string]float64 // weights by label, and by name or category of a bot; the default is 1
}

// Defaults and bounds of a share.
const (
	DefaultShareWait  = 10 * time.Second
	DefaultShareQueue = 1024
	defaultMinSlots   = 1
	defaultMaxSlots   = 1024

	maxSlots      = 1 << 16
	maxShareWait  = 10 * time.Minute
	maxShareQueue = 1 << 20
	maxKnownAfter = 31 * 24 * time.Hour
	maxShareParts = 5
	maxWeights    = 1000
	minWeight     = 0.01
	maxWeight     = 100
)

const shareExample = "{capacity: auto}"

func shareKeys() []key[Share] {
	return []key[Share]{
		{"capacity", func(r *reader, n *node, s *Share) { s.Capacity = r.capacity(n) }},
		{"min", func(r *reader, n *node, s *Share) { s.Min = int(r.integer(n, "min", 1, maxSlots)) }},
		{"max", func(r *reader, n *node, s *Share) { s.Max = int(r.integer(n, "max", 1, maxSlots)) }},
		{"by", func(r *reader, n *node, s *Share) { s.By = r.shareParts(n) }},
		{"wait", func(r *reader, n *node, s *Share) { s.Wait = r.duration(n, "wait", 0, maxShareWait) }},
		{"queue", func(r *reader, n *node, s *Share) { s.Queue = int(r.integer(n, "queue", 0, maxShareQueue)) }},
		{"known_after", func(r *reader, n *node, s *Share) {
			s.Ages = r.duration(n, "known_after", 0, maxKnownAfter) > 0
		}},
		{"shared", func(r *reader, n *node, s *Share) { s.EachMember = !r.boolean(n, "shared") }},
		{"weights", func(r *reader, n *node, s *Share) {
			if got := readMap(r, n, "weights", "{labels: {partner: 4}}", weightKeys(), s); got != nil &&
				len(n.entries) == 0 {
				r.fault(n, "weights: {labels: {partner: 4}}", "weights: the map is empty")
			}
		}},
	}
}

func weightKeys() []key[Share] {
	return []key[Share]{
		{"labels", func(r *reader, n *node, s *Share) {
			s.Labels = r.weights(n, "labels", "{partner: 4}", r.weightedLabel)
		}},
		{"bots", func(r *reader, n *node, s *Share) {
			s.Bots = r.weights(n, "bots", "{googlebot: 2}", r.weightedBot)
		}},
	}
}

// ServedShare returns how serve shares the upstream: as the file says, or as
// "share: auto" if it says nothing. Then the capacity that is found has no useful
// upper bound, because some sites have thousands of long polls. And upstreams on this machine are
// those of this member alone. It returns nil for "share: none".
func (f *File) ServedShare() *Share {
	if f.Share != nil || f.NoShare {
		return f.Share
	}
	s := defaultShare()
	s.By, s.Default, s.Max = DefaultShareBy(len(f.ASN.Files) > 0), true, maxSlots
	s.EachMember = !f.hasRemoteUpstream()
	s.bounds()
	return s
}

func defaultShare() *Share {
	return &Share{Wait: DefaultShareWait, Queue: DefaultShareQueue, Ages: true}
}

func readShare(r *reader, n *node, f *File) {
	if n.kind == scalarNode && (n.text == "none" || n.text == "off") {
		f.NoShare = true
		return
	}
	f.Share = defaultShare()
	if n.kind == scalarNode { // only a capacity
		if n.text != "auto" && !plainDigits(n.text) {
			hint := "share: " + shareExample
			switch strings.ToLower(n.text) {
			case "false", "no", "never", "disabled", "none", "off":
				hint = "share: none"
			}
			r.fault(n, hint, "share: a map, a number of requests, auto or none is needed, not %s", n.describe())
			return
		}
		f.Share.Capacity = r.capacity(n)
		f.Share.bounds()
		return
	}
	got := readMap(r, n, "share", shareExample, shareKeys(), f.Share)
	if got == nil {
		return
	}
	if !got.has("capacity") {
		r.missing(n, "share: "+shareExample,
			"share: a capacity is needed: the number of requests that the upstream works on at once, or auto")
		return
	}
	if f.Share.Capacity > 0 {
		for _, k := range []string{"min", "max"} {
			if got.has(k) {
				r.fault(got.at(k), "capacity: auto", "%s belongs to capacity: auto", k)
			}
		}
		return
	}
	f.Share.bounds()
	if f.Share.Min > f.Share.Max {
		r.fault(got.at("min", "max"), "", "min: %d is more than max: %d", f.Share.Min, f.Share.Max)
	}
}

// DefaultShareBy returns the levels of a share that names none. owners says that the owners of
// addresses are known.
func DefaultShareBy(owners bool) []fairshare.KeyPart {
	by := []fairshare.KeyPart{{Kind: fairshare.ByFleet}}
	if owners {
		by = append(by, fairshare.KeyPart{Kind: fairshare.ByASN})
	}
	return append(by, fairshare.KeyPart{Kind: fairshare.ByNetwork, Bits4: 16, Bits6: 32},
		fairshare.KeyPart{Kind: fairshare.ByNetwork}, fairshare.KeyPart{Kind: fairshare.ByAddr})
}

// bounds sets the defaults of Min and Max for an estimated capacity.
func (s *Share) bounds() {
	if s.Capacity > 0 {
		return
	}
	if s.Min == 0 {
		s.Min = defaultMinSlots
	}
	if s.Max == 0 {
		s.Max = max(defaultMaxSlots, s.Min)
	}
}

// capacity reads a number of concurrent requests, or auto, for which it returns 0.
func (r *reader) capacity(n *node) int {
	if n.kind == scalarNode {
		switch word := strings.ToLower(n.text); {
		case n.text == "auto":
			return 0
		case slices.Contains([]string{"automatic", "adaptive", "dynamic", "auto", "true", "on"}, word):
			r.fault(n, "capacity: auto", "capacity: a number of requests or auto is needed, not %s", n.describe())
			return 0
		case strings.HasSuffix(word, "%"), strings.HasSuffix(word, "/s"), strings.HasSuffix(word, "r/s"):
			r.fault(n, "capacity: 32", "capacity: a number of requests at once or auto is needed, not %s", n.describe())
			return 0
		case prose.DidYouMean(word, []string{"auto"}) != "":
			r.fault(n, "capacity: auto", "capacity: a number of requests or auto is needed, not %s", n.describe())
			return 0
		}
	}
	return int(r.integer(n, "capacity", 1, maxSlots))
}

// shareParts reads the parts of the key by which the upstream is shared, the widest
// first.
func (r *reader) shareParts(n *node) []fairshare.KeyPart {
	parts := r.keyParts(n)
	list := items(n)
	if len(parts) > maxShareParts {
		r.fault(list[maxShareParts], "", "by: more than %d parts", maxShareParts)
	}
	for i, part := range parts {
		switch part.Kind {
		case fairshare.ByPath:
			r.fault(list[i], "use by: [network, addr]; a client pays for its expensive pages",
				"by: path: the upstream is shared by clients, not by pages")
		case fairshare.ByValue:
			r.fault(list[i], "by: [network, cookie:NAME]",
				"by: %s: only a Go program can give values, and only to limits",
				part)
		case fairshare.ByForm:
			r.fault(list[i], "by: [network, cookie:NAME]", "by: %s: only limits count by fields of forms", part)
		case fairshare.ByEveryone:
			r.fault(list[i], "by: [network, addr]",
				"by: everyone: all clients would be one, and nothing would be shared")
		}
	}
	return parts
}

// weights reads a map of names to weights.
func (r *reader) weights(n *node, what, example string, name func(*node) string) map[string]float64 {
	if n.kind != mapNode {
		r.fault(n, what+": "+example, "%s: a map of names and weights is needed, not %s", what, n.describe())
		return nil
	}
	if len(n.entries) == 0 {
		r.fault(n, what+": "+example, "%s: the map is empty", what)
	}
	weights := map[string]float64{}
	for i, e := range n.entries {
		if i == maxWeights {
			r.fault(e.key, "", "%s: more than %d weights", what, maxWeights)
			break
		}
		word := name(e.key)
		if _, twice := weights[word]; twice && word != "" {
			r.fault(e.key, "", "%s: %s is listed twice", what, quote(word))
			continue
		}
		weight := r.number(e.value, "the weight of "+quote(e.key.text), minWeight, maxWeight)
		if word != "" {
			weights[word] = weight
		}
	}
	return weights
}

// weightedLabel reads the name of a label. It returns "" after a fault.
func (r *reader) weightedLabel(n *node) string {
	if isRegexp(n.text) {
		r.fault(n, "write one line for each label", "labels: a weight is for one label, not for a regexp")
		return ""
	}
	name, err := ParseLabel(n.text)
	if err != nil {
		r.fault(n, err.(*LabelError).Hint(), "labels: %v", err)
	}
	return name
}

// weightedBot reads the name or category of a bot. It returns "" after a fault.
func (r *reader) weightedBot(n *node) string {
	r.loadBots(nil)
	word := strings.ToLower(n.text)
	switch {
	case isRegexp(n.text):
		r.fault(n, "write one line for each name or category",
			"bots: a weight is for one name or category, not for a regexp")
		return ""
	case slices.Contains(states, word):
		r.fault(n, "a name or category such as googlebot or ai",
			"bots: %s is not the name or category of a bot; only verified bots have weights", quote(n.text))
		return ""
	case r.has(word), r.bots == nil && botName(word):
		return word
	case r.tooManyFaults(): // searching for a hint takes time
		r.omitted++
		return ""
	}
	r.fault(n, r.botHint(word), "bots: %s is not the name or category of a bot", quote(n.text))
	return ""
}

// warnShareOrder warns of a part after a narrower one: it has no effect.
func (r *reader) warnShareOrder(at *node, by []fairshare.KeyPart) {
	for i := 1; i < len(by); i++ {
		above, part := by[i-1], by[i]
		hint := fmt.Sprintf("by: [%s, %s]", part, above)
		switch {
		case part.Kind != fairshare.ByNetwork:
		case above.Kind == fairshare.ByAddr:
			r.warn(at, hint, "by: %s after addr has no effect: an address is in one network", part)
		case above.Kind == fairshare.ByNetwork:
			above4, above6 := above.PrefixLengths()
			if bits4, bits6 := part.PrefixLengths(); bits4 <= above4 && bits6 <= above6 {
				r.warn(at, hint, "by: %s after %s has no effect: each narrower network is in one wider network", part, above)
			}
		}
	}
}

// warnShare warns of a share that leaves most cores idle, that clients can evade,
// or that has settings without effect.
func (r *reader) warnShare() {
	s := r.file.Share
	if s == nil {
		return
	}
	n := find(r.root, "share")
	if cores := r.cores(); s.Capacity > 0 && float64(s.Capacity) <= cores/4 &&
		(r.file.UpstreamCPU.Cores > 0 || !r.hasRemoteUpstream()) {
		r.warn(firstNode(find(n, "capacity"), n), fmt.Sprintf("capacity: %d, or auto", int(cores)),
			"capacity: %s at once leave most of %s idle", prose.Plural(int64(s.Capacity), "request"), coresText(cores))
	}
	timeout := r.file.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	if s.Wait > timeout {
		r.warn(firstNode(find(n, "wait")), "",
			"wait: %s is longer than the upstream's timeout of %s: a client waits longer for its turn than for its answer", FormatDuration(s.Wait), FormatDuration(timeout))
	}
	if s.Queue == 0 && s.Wait > 0 && find(n, "queue") != nil {
		r.warn(find(n, "queue"), "write wait: 0s instead", "queue: 0: no request waits, and wait has no effect")
	}
	r.warnShareOrder(firstNode(find(n, "by")), s.By)
	if len(s.By) > 0 && (s.By[0].Kind == fairshare.ByCookie || s.By[0].Kind == fairshare.ByHeader ||
		s.By[0].Kind == fairshare.ByUserAgent) {
		r.warn(firstNode(find(n, "by")), "by: [network, "+s.By[0].String()+"]",
			"by: %s comes first, and clients can choose it: with several values a client gets several shares", s.By[0])
	}
	if known := find(n, "known_after"); known != nil && s.Ages {
		r.warn(known, "remove the line", "known_after: a duration has no effect any more: standing grows with the time "+
			"since a client's first request; 0s turns that off")
	}
	weights := find(n, "weights")
	if labels := find(weights, "labels"); labels != nil {
		for _, e := range labels.entries {
			r.warnLabel(e.key, "a client without a label has the weight 1", "")
		}
	}
	if bots := find(weights, "bots"); bots != nil {
		for _, e := range bots.entries {
			if w, known := r.bots[strings.ToLower(e.key.text)]; known && !w.verifiable {
				why := "it cannot be verified"
				if w.userTriggered {
					why = "any user can make it fetch a page"
				}
				r.warn(e.key, "", "bots: %s never has this weight: only verified bots have one, and %s",
					quote(e.key.text), why)
			}
		}
	}
}
