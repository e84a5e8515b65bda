package policyfile

import (
	"slices"
	"strings"

	"fairshare"
)

// ASN names the files with the owners of addresses. See package asn.
type ASN struct {
	Files   []string // tables, see File.ResolvePath; none means that no owner is known
	Hosting string   // file with the numbers of owners of the type "hosting"; "" means none
}

// maxASNFiles is the largest number of files of one table: one or more for each
// family.
const maxASNFiles = 8

const asnExample = "{file: GeoLite2-ASN.mmdb}"

func asnKeys() []key[ASN] {
	return []key[ASN]{
		{"file", func(r *reader, n *node, a *ASN) { a.Files = r.asnFiles(n) }},
		{"hosting", func(r *reader, n *node, a *ASN) { a.Hosting = r.fileName(n, "hosting", "") }},
	}
}

func readASN(r *reader, n *node, f *File) {
	if n.kind == scalarNode && n.text != "" {
		r.fault(n, "asn: {file: "+shorten(n.text)+"}", "asn: a map with a file is needed, not %s", n.describe())
		return
	}
	got := readMap(r, n, "asn", asnExample, asnKeys(), &f.ASN)
	if got != nil && !got.has("file") {
		r.missing(n, "asn: "+asnExample, "asn: a file is needed: a table of addresses and their owners")
	}
}

// asnFiles reads the names of one or more files.
func (r *reader) asnFiles(n *node) []string {
	var files []string
	for i, item := range r.list(n, "file") {
		if i == maxASNFiles {
			r.fault(item, "", "file: more than %d files", maxASNFiles)
			break
		}
		s := r.fileName(item, "file", "")
		if s != "" && slices.Contains(files, s) {
			r.fault(item, "", "file: %s is listed twice", quote(s))
			continue
		}
		if s != "" {
			files = append(files, s)
		}
	}
	return files
}

// maxOwners is the largest number of values of one condition.
const maxOwners = 1000

// owners reads numbers of autonomous systems, and texts for types and names.
func (r *reader) owners(n *node) []string {
	list := []string{}
	for i, item := range r.list(n, "asn") {
		if i == maxOwners {
			r.fault(item, "", "asn: more than %d values", maxOwners)
			break
		}
		s, ok := r.pattern(item, "asn")
		if !ok {
			continue
		}
		number, isNumber := fairshare.ASNumber(s)
		digits := s
		if len(s) > 2 && strings.EqualFold(s[:2], "as") {
			digits = s[2:]
		}
		switch {
		case s == "":
			r.fault(item, "asn: AS64500, or a type such as hosting", "asn: a number, a type or a name is needed")
		case isNumber && number == 0:
			r.fault(item, "", "asn: %s owns no address", quote(s))
		case plainDigits(digits) && !isNumber:
			r.fault(item, "", "asn: %s is more than AS4294967295", quote(s))
		default:
			list = append(list, s)
		}
	}
	return list
}

// byOwner reports whether a key has a part asn.
func byOwner(by []fairshare.KeyPart) bool {
	return slices.ContainsFunc(by, func(part fairshare.KeyPart) bool { return part.Kind == fairshare.ByASN })
}

// OwnerTexts returns the texts of all conditions asn of the rules, each once.
func (f *File) OwnerTexts() []string {
	var texts []string
	for i := range f.Policy.Rules {
		rule := &f.Policy.Rules[i]
		texts = appendOwnerTexts(texts, &rule.Match)
		if rule.Ban != nil && rule.Ban.Unless != nil {
			texts = appendOwnerTexts(texts, rule.Ban.Unless)
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func appendOwnerTexts(texts []string, m *fairshare.Match) []string {
	texts = append(texts, m.ASN...)
	for i := range m.Not {
		texts = appendOwnerTexts(texts, &m.Not[i])
	}
	return texts
}

// checkOwners reports rules that test owners in a policy without a
// table. Such conditions would never hold.
func (r *reader) checkOwners() {
	if len(r.file.ASN.Files) > 0 || find(r.root, "asn") != nil {
		return
	}
	remedy := "add asn: " + asnExample + " at the top of the policy"
	for i := range r.file.Policy.Rules {
		rule := &r.file.Policy.Rules[i]
		at := r.rules[i]
		if rule.Limit != nil && byOwner(rule.Limit.By) {
			r.fault(firstNode(find(at.limit, "by"), at.node), remedy,
				"by: asn needs a table of the owners of addresses")
		}
		var texts []string
		texts = appendOwnerTexts(texts, &rule.Match)
		if rule.Ban != nil && rule.Ban.Unless != nil {
			texts = appendOwnerTexts(texts, rule.Ban.Unless)
		}
		if texts != nil {
			r.fault(firstNode(find(at.match, "asn"), at.match, at.node), remedy,
				"match: asn needs a table of the owners of addresses")
		}
	}
	if s := r.file.Share; s != nil && byOwner(s.By) {
		r.fault(firstNode(find(find(r.root, "share"), "by")), remedy,
			"by: asn needs a table of the owners of addresses")
	}
}

// warnASN warns of a table that no rule uses.
func (r *reader) warnASN() {
	used := r.file.Share != nil && byOwner(r.file.Share.By) || len(r.file.OwnerTexts()) > 0
	for i := range r.file.Policy.Rules {
		lim := r.file.Policy.Rules[i].Limit
		used = used || lim != nil && byOwner(lim.By)
	}
	if len(r.file.ASN.Files) > 0 && !used {
		r.warn(firstNode(find(r.root, "asn")), "limit: {requests: 6000, per: 1m, by: asn, newcomers: {requests: 60, per: 1m}}",
			"asn: no rule matches or counts by owners of addresses")
	}
}
