package policyfile

import (
	"encoding/json"
	"testing"
)

// value returns a node as a value of JSON. Every scalar is a text.
func (n *node) value() any {
	switch n.kind {
	case scalarNode:
		return n.text
	case listNode:
		list := []any{}
		for _, item := range n.items {
			list = append(list, item.value())
		}
		return list
	case mapNode:
		m := map[string]any{}
		for _, e := range n.entries {
			m[e.key.text] = e.value.value()
		}
		return m
	}
	return nil
}

func TestColonsInsideTextsNeedNoQuotes(t *testing.T) {
	for source, want := range map[string]string{
		"{p: [re:^2, x]}":                          `{"p":["re:^2","x"]}`,
		"{by: [cookie:sid, addr]}":                 `{"by":["cookie:sid","addr"]}`,
		"{by: cookie:sid}":                         `{"by":"cookie:sid"}`,
		"{requests:3, per: 3s}":                    `{"per":"3s","requests:3":null}`,
		"{addr: [::1, 2001:db8::/32, a, b: c]}":    `{"addr":["::1","2001:db8::/32","a",{"b":"c"}]}`,
		"{b: ::1, c: 2001:db8::1}":                 `{"b":"::1","c":"2001:db8::1"}`,
		"{b: [re:*x a , d:e:f], c: d}":             `{"b":["re:*x a","d:e:f"],"c":"d"}`,
		"{b: [x:y:z # a: b\n, c]}":                 `{"b":["x:y:z","c"]}`,
		`{"b":c, 'd':e}`:                           `{"b":"c","d":"e"}`,
		`{b: {c: [d:e]}, f: [g:h, "i:j", 'k':l]}`:  `{"b":{"c":["d:e"]},"f":["g:h","i:j",{"k":"l"}]}`,
		"{b:\n c, d: [é:é, é: é]}":                 `{"b":"c","d":["é:é",{"é":"é"}]}`,
		"{ b: [ 1:2 ], c: [http://example.org/] }": `{"b":["1:2"],"c":["http://example.org/"]}`,
		"{b: c:d e:f}":                             `{"b":"c:d e:f"}`,
		"re:x":                                     `"re:x"`,
		"- [a:b]\n- c:d":                           `[["a:b"],"c:d"]`,
	} {
		r := &reader{file: &File{}}
		n, fault := r.parseTree(source)
		if fault != nil || n == nil || len(r.faults) > 0 {
			t.Errorf("%s: fault %v, %v", source, fault, r.faults)
			continue
		}
		if got, _ := json.Marshal(n.value()); string(got) != want {
			t.Errorf("%s is read as %s, want %s", source, got, want)
		}
	}
}
