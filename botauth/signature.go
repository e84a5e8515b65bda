// Package botauth verifies the signatures by which bots prove who they are. This is Web
// Bot Auth: HTTP Message Signatures (RFC 9421) with Ed25519 keys, from a directory on
// the host that the header Signature-Agent names. See
// draft-ietf-webbotauth-httpsig-protocol and its predecessors.
//
// A signature proves that a request comes from the holder of an agent's keys, such
// as chatgpt.com. Anybody can publish keys, so a [Verifier] knows only the agents
// that it is given. Package bots decides which bot an agent is.
package botauth

import (
	"errors"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
)

// A Request is the part of an HTTP request that a signature may cover.
type Request struct {
	Method string
	Scheme string              // "https" or "http"; "" means unknown, then both are tried
	Host   string              // as received, with the port if there is one
	Target string              // the request target as received
	Header map[string][]string // with canonical names
}

// Bounds of one request's headers. Longer ones count as unsigned.
const (
	maxInput      = 4 << 10 // bytes of Signature-Input
	maxSignature  = 4 << 10 // bytes of Signature
	maxAgent      = 1 << 10 // bytes of Signature-Agent
	maxLabels     = 4       // signatures with our tag that are looked at
	maxComponents = 16
	maxNonce      = 256 // bytes
)

// tag marks signatures of Web Bot Auth among others.
const tag = "web-bot-auth"

// A signature is one signature of a request, parsed but not verified.
type signature struct {
	agent            string // as agentHost returns it
	keyID            string // the thumbprint of the key
	nonce            string // "" if there is none
	created, expires int64  // Unix seconds
	covered          []component
	params           string // the value of @signature-params
	value            []byte // 64 bytes
}

// A component is a covered component (RFC 9421 §2).
type component struct {
	name string // in lower case
	key  string // of a dictionary's member; "" for the whole field
	id   string // as the signature base has it
}

// Faults of a signature, as sentences without a full stop.
var (
	errBudget        = errors.New("too many signatures that prove nothing came shortly before, so it was not checked")
	errNoInput       = errors.New("the request has no signature of a bot (tag \"web-bot-auth\")")
	errSize          = errors.New("its signature headers are longer than those of any bot")
	errAgent         = errors.New("it has no Signature-Agent with the https URL of an agent that is trusted here")
	errSyntax        = errors.New("its signature headers are not structured fields as RFC 9421 describes them")
	errAlgorithm     = errors.New("its signature is not one of Ed25519")
	errParams        = errors.New("its signature lacks created, expires or keyid")
	errAgentUncov    = errors.New("its signature does not cover Signature-Agent")
	errHostUncovered = errors.New("its signature covers neither @authority nor @target-uri")
	errComponent     = errors.New("its signature covers something that cannot be checked here")
)

// parse returns the first signature of a request by an agent that is trusted. If its
// error is about the signature of a trusted agent, agent is that agent, otherwise "".
// Only the agents are read unless allowed returns true.
func parse(r *Request, trusted func(agent string) bool, allowed func() bool) (sig *signature, agent string, err error) {
	inputs, values, agents := r.Header["Signature-Input"], r.Header["Signature"], r.Header["Signature-Agent"]
	switch {
	case len(inputs) == 0:
		return nil, "", errNoInput
	case length(inputs) > maxInput, length(values) > maxSignature, length(agents) > maxAgent:
		return nil, "", errSize
	}
	named, err := parseAgents(agents)
	if err != nil {
		return nil, "", err
	}
	agent = named.first(trusted)
	switch {
	case agent == "":
		return nil, "", errAgent
	case !allowed():
		return nil, agent, errBudget
	}
	agent = ""
	input, err := httpsfv.UnmarshalDictionary(inputs)
	if err != nil {
		return nil, "", errSyntax
	}
	fault := errNoInput
	looked := 0
	for _, label := range input.Names() {
		member, _ := input.Get(label)
		list, ok := member.(httpsfv.InnerList)
		if !ok || text(list.Params, "tag") != tag {
			continue
		}
		if looked++; looked > maxLabels {
			break
		}
		s, err := parseOne(label, list, named)
		if s.agent == "" || !trusted(s.agent) {
			continue
		}
		if err == nil {
			s.value, err = signatureValue(values, label)
		}
		if err == nil {
			return s, s.agent, nil
		}
		agent, fault = s.agent, err
	}
	return nil, agent, fault
}

func length(lines []string) (n int) {
	for _, line := range lines {
		n += len(line) + 2
	}
	return n
}

// agents are the agents that Signature-Agent names: one for all signatures in the
// older form, a dictionary in the newer one.
type agents struct {
	whole string
	byKey map[string]string
}

// parseAgents reads Signature-Agent. Members that name no agent are left out.
func parseAgents(lines []string) (agents, error) {
	if len(lines) == 0 {
		return agents{}, errAgent
	}
	if strings.HasPrefix(strings.TrimLeft(lines[0], " "), `"`) {
		item, err := httpsfv.UnmarshalItem(lines)
		if err != nil {
			return agents{}, errSyntax
		}
		url, _ := item.Value.(string)
		return agents{whole: agentHost(url)}, nil
	}
	dictionary, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return agents{}, errSyntax
	}
	named := agents{byKey: map[string]string{}}
	for _, key := range dictionary.Names() {
		member, _ := dictionary.Get(key)
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		if kind, found := item.Params.Get("type"); found && kind != "directory" && kind != httpsfv.Token("directory") {
			continue // another document than a key directory
		}
		if url, ok := item.Value.(string); ok {
			named.byKey[key] = agentHost(url)
		}
	}
	return named, nil
}

// first returns a trusted agent; "" if there is none.
func (a *agents) first(trusted func(string) bool) string {
	if a.whole != "" && trusted(a.whole) {
		return a.whole
	}
	for _, key := range slices.Sorted(maps.Keys(a.byKey)) {
		if agent := a.byKey[key]; agent != "" && trusted(agent) {
			return agent
		}
	}
	return ""
}

// agentHost returns the host of an agent's URL in lower case, with the port unless it
// is 443. It returns "" if the URL is not https or has more than a host.
func agentHost(url string) string {
	rest, found := cutPrefixFold(url, "https://")
	if !found {
		return ""
	}
	rest = strings.TrimSuffix(strings.TrimSuffix(rest, DirectoryPath), "/")
	host, ok := NormalAgent(rest)
	if !ok {
		return ""
	}
	return host
}

// NormalAgent returns the form in which a Verifier knows an agent: its host in lower
// case, and the port unless it is 443. ok is false if s is not a host, or an address.
func NormalAgent(s string) (agent string, ok bool) {
	s = strings.ToLower(s)
	host, port, hasPort := strings.Cut(s, ":")
	if hasPort && (port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" || port[0] == '0') {
		return "", false
	}
	if host == "" || len(host) > 253 {
		return "", false
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return "", false
		}
		last = label
	}
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") { // an IPv4 address
		return "", false
	}
	if hasPort && port != "443" {
		host += ":" + port
	}
	return host, true
}

func cutPrefixFold(s, prefix string) (rest string, found bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// text returns a parameter that is a string; "" otherwise.
func text(params *httpsfv.Params, name string) string {
	value, _ := params.Get(name)
	s, _ := value.(string)
	return s
}

// parseOne reads one member of Signature-Input. The signature that it returns has its
// agent even if there is an error; "" means that it names none.
func parseOne(label string, list httpsfv.InnerList, named agents) (*signature, error) {
	s := &signature{agent: named.whole}
	if named.byKey != nil {
		s.agent = named.byKey[label]
	}
	if len(named.byKey) == 1 {
		for _, s.agent = range named.byKey {
		}
	}
	if len(list.Items) > maxComponents {
		return s, errComponent
	}
	fault := error(nil)
	agentCovered, hostCovered := false, false
	seen := map[string]bool{}
	for _, item := range list.Items {
		c, err := parseComponent(item)
		if err == nil && seen[c.id] {
			err = errSyntax
		}
		if err != nil {
			fault = err
			continue
		}
		seen[c.id] = true
		switch {
		case c.name == "@authority", c.name == "@target-uri":
			hostCovered = true
		case c.name != "signature-agent":
		case c.key == "": // the whole field
			agentCovered = true
		case named.byKey != nil && !agentCovered:
			s.agent, agentCovered = named.byKey[c.key], true
		}
		s.covered = append(s.covered, c)
	}
	s.keyID, s.nonce = text(list.Params, "keyid"), text(list.Params, "nonce")
	var hasCreated, hasExpires bool
	s.created, hasCreated = integer(list.Params, "created")
	s.expires, hasExpires = integer(list.Params, "expires")
	switch alg, found := list.Params.Get("alg"); {
	case fault != nil:
		return s, fault
	case found && alg != "ed25519":
		return s, errAlgorithm
	case !hasCreated, !hasExpires, s.keyID == "", len(s.nonce) > maxNonce:
		return s, errParams
	case !agentCovered:
		return s, errAgentUncov
	case !hostCovered:
		return s, errHostUncovered
	}
	var err error
	if s.params, err = httpsfv.Marshal(httpsfv.List{list}); err != nil {
		return s, errSyntax
	}
	return s, nil
}

func integer(params *httpsfv.Params, name string) (n int64, found bool) {
	value, _ := params.Get(name)
	n, found = value.(int64)
	return n, found
}

func parseComponent(item httpsfv.Item) (component, error) {
	name, ok := item.Value.(string)
	if !ok || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.@!#$%&'*+^`|~") != "" {
		return component{}, errSyntax
	}
	c := component{name: name}
	for _, param := range item.Params.Names() {
		if param != "key" || name[0] == '@' {
			return component{}, errComponent
		}
		if c.key = text(item.Params, "key"); c.key == "" {
			return component{}, errSyntax
		}
	}
	switch name {
	case "@method", "@authority", "@scheme", "@target-uri", "@request-target", "@path", "@query":
	default:
		if name[0] == '@' {
			return component{}, errComponent
		}
	}
	var err error
	if c.id, err = httpsfv.Marshal(item); err != nil {
		return component{}, errSyntax
	}
	return c, nil
}

// signatureValue returns the bytes of the signature with a label.
func signatureValue(lines []string, label string) ([]byte, error) {
	dictionary, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return nil, errSyntax
	}
	member, _ := dictionary.Get(label)
	item, _ := member.(httpsfv.Item)
	value, ok := item.Value.([]byte)
	switch {
	case !ok:
		return nil, errSyntax
	case len(value) != 64:
		return nil, errAlgorithm
	}
	return value, nil
}

// base returns the signature base (RFC 9421 §2.5) of a request that came by a scheme.
func (s *signature) base(r *Request, scheme string) (string, error) {
	var b strings.Builder
	b.Grow(512)
	for _, c := range s.covered {
		value, err := c.value(r, scheme)
		if err != nil {
			return "", err
		}
		if strings.ContainsAny(value, "\r\n") { // it would look like another component
			return "", errComponent
		}
		b.WriteString(c.id)
		b.WriteString(": ")
		b.WriteString(value)
		b.WriteByte('\n')
	}
	b.WriteString(`"@signature-params": `)
	b.WriteString(s.params)
	return b.String(), nil
}

// value returns the value of a component (RFC 9421 §2.1, §2.2).
func (c *component) value(r *Request, scheme string) (string, error) {
	path, query, hasQuery := "", "", false
	if c.name[0] == '@' && c.name != "@method" && c.name != "@authority" && c.name != "@scheme" {
		target := r.Target
		if target != "" && target[0] != '/' { // absolute form
			_, rest, found := strings.Cut(target, "://")
			i := strings.IndexAny(rest, "/?")
			if !found || i < 0 {
				return "", errComponent
			}
			target = rest[i:]
		}
		if path, query, hasQuery = strings.Cut(target, "?"); path == "" {
			path = "/"
		}
	}
	switch c.name {
	case "@method":
		return r.Method, nil
	case "@scheme":
		return scheme, nil
	case "@authority":
		return authority(r.Host, scheme), nil
	case "@target-uri":
		uri := scheme + "://" + authority(r.Host, scheme) + path
		if hasQuery {
			uri += "?" + query
		}
		return uri, nil
	case "@request-target":
		return r.Target, nil
	case "@path":
		return path, nil
	case "@query":
		return "?" + query, nil
	case "host":
		return r.Host, nil
	}
	lines, found := r.Header[textproto.CanonicalMIMEHeaderKey(c.name)]
	if !found {
		return "", errComponent
	}
	if c.key == "" {
		trimmed := make([]string, len(lines))
		for i, line := range lines {
			trimmed[i] = strings.Trim(line, " \t")
		}
		return strings.Join(trimmed, ", "), nil
	}
	dictionary, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return "", errSyntax
	}
	member, found := dictionary.Get(c.key)
	if !found {
		return "", errComponent
	}
	var value string
	switch member := member.(type) {
	case httpsfv.Item:
		value, err = httpsfv.Marshal(member)
	case httpsfv.InnerList:
		value, err = httpsfv.Marshal(httpsfv.List{member})
	}
	if err != nil {
		return "", errSyntax
	}
	return value, nil
}

// authority returns a host in lower case, without the default port of the scheme.
func authority(host, scheme string) string {
	host = strings.ToLower(host)
	if scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// usesScheme reports whether the base depends on the scheme.
func (s *signature) usesScheme(r *Request) bool {
	for _, c := range s.covered {
		if c.name == "@target-uri" || c.name == "@scheme" ||
			c.name == "@authority" && (strings.HasSuffix(r.Host, ":443") || strings.HasSuffix(r.Host, ":80")) {
			return true
		}
	}
	return false
}
