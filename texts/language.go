package texts

import (
	"slices"
	"strings"
)

// English is the language of clients that name none that there is.
const English = "en"

// maxRanges is the number of languages of a client that are looked at.
const maxRanges = 12

// CheckLanguage reports whether a text has the form of a language tag (RFC 5646
// §2.1). Subtags of 1 to 8 letters and digits are joined by hyphens. The first has 2
// or more letters. A tag has at most 35 characters.
func CheckLanguage(tag string) bool {
	if len(tag) > 35 {
		return false
	}
	for i, sub := range strings.Split(tag, "-") {
		if len(sub) < 1 || len(sub) > 8 || i == 0 && len(sub) < 2 {
			return false
		}
		for j := range len(sub) {
			c := sub[j]
			if (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
				return false
			}
		}
	}
	return true
}

// Choose returns the index in Languages of the one that a client prefers, from the
// values of Accept-Language (RFC 9110 §12.5.4): the lookup of RFC 4647 §3.4, by falling
// weight. It is 0, English, if there is none of its languages.
func (s *Set) Choose(accept []string) int {
	best, bestQ, ranges := 0, 0, 0
	for _, line := range accept {
		for line != "" && ranges < maxRanges {
			var item string
			item, line, _ = strings.Cut(line, ",")
			ranges++
			name, q := languageRange(item)
			if q <= bestQ { // the first of equals wins
				continue
			}
			if i := s.lookup(name); i >= 0 {
				best, bestQ = i, q
			}
		}
	}
	return best
}

// lookup returns the index of the language for the longest prefix of a range; -1 if
// there is none.
func (s *Set) lookup(name string) int {
	for name != "" {
		for i := range s.languages {
			if tag := s.languages[i].Tag; len(tag) == len(name) && strings.EqualFold(tag, name) {
				return i
			}
		}
		cut := strings.LastIndexByte(name, '-')
		if cut < 0 {
			return -1
		}
		name = name[:cut]
		// A single letter begins what was cut.
		if cut := strings.LastIndexByte(name, '-'); cut == len(name)-2 && cut >= 0 {
			name = name[:cut]
		}
	}
	return -1
}

// languageRange splits an element of Accept-Language. The weight is in thousandths;
// an invalid one is 0.
func languageRange(item string) (name string, q int) {
	name, param, weighted := strings.Cut(item, ";")
	if name = strings.Trim(name, " \t"); len(name) > 35 {
		return "", 0
	}
	if !weighted {
		return name, 1000
	}
	key, value, _ := strings.Cut(strings.Trim(param, " \t"), "=")
	value = strings.Trim(value, " \t")
	if !strings.EqualFold(strings.Trim(key, " \t"), "q") || value == "" || len(value) > 5 ||
		len(value) > 1 && value[1] != '.' {
		return name, 0
	}
	unit := 1000
	for i := range len(value) {
		if i == 1 {
			continue
		}
		if value[i] < '0' || value[i] > '9' {
			return name, 0
		}
		q += int(value[i]-'0') * unit
		unit /= 10
	}
	if q > 1000 {
		return name, 0
	}
	return name, q
}

// rightToLeft are languages that are usually written from right to left.
var rightToLeft = []string{"ar", "arc", "ckb", "dv", "fa", "he", "iw", "ji", "ps", "sd", "ug", "ur", "yi"}

// direction returns the value of the attribute dir for a language.
func direction(tag string) string {
	subs := strings.Split(strings.ToLower(tag), "-")
	rtl := slices.Contains(rightToLeft, subs[0])
	if len(subs) > 1 && len(subs[1]) == 4 { // a script
		rtl = slices.Contains([]string{"arab", "hebr", "syrc", "thaa", "nkoo", "rohg", "adlm"}, subs[1])
	}
	if rtl {
		return "rtl"
	}
	return "ltr"
}
