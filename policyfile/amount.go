package policyfile

import (
	"fmt"
	"math/big"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare"
)

// percentage matches a share of a window as policies write it.
var percentage = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?%$`)

// cores returns the number of CPU cores of the upstream.
func (r *reader) cores() float64 {
	switch {
	case r.file.UpstreamCPU.Cores > 0:
		return r.file.UpstreamCPU.Cores
	case r.options.Cores > 0:
		return float64(r.options.Cores)
	}
	return float64(runtime.NumCPU())
}

// micros reads CPU or time, such as 1.05s or 7%, in µs. A percentage is a share of
// the window; for CPU it is a share of the window on all cores. With a window of
// 0, which is an error that checkLimit reports, only the spelling is checked. A
// value that is out of bounds is a fault, and 0 is returned.
func (r *reader) micros(n *node, what string, d *fairshare.Limit) int64 {
	if n.kind != scalarNode {
		r.fault(n, "", "%s: %s", what, amountNeeded(d.Resource, n))
		return 0
	}
	if percentage.MatchString(n.text) {
		return r.percent(n, what, d)
	}
	spent, ok := parseDuration(n.text)
	switch {
	case !ok:
		r.fault(n, amountHint(n.text, what, d.Resource), "%s: %s", what, amountNeeded(d.Resource, n))
	case spent < time.Microsecond:
		r.fault(n, what+": 1ms", "%s: %s is less than a microsecond", what, shorten(n.text))
	case spent/time.Microsecond > fairshare.MaxMicros:
		r.fault(n, "", "%s: %s is more than 35 years", what, shorten(n.text))
	default:
		return int64(spent / time.Microsecond)
	}
	return 0
}

// percent reads a share. The result is exactly percent × cores × window, rounded
// down.
func (r *reader) percent(n *node, what string, d *fairshare.Limit) int64 {
	share, _ := new(big.Rat).SetString(strings.TrimSuffix(n.text, "%"))
	share.Quo(share, big.NewRat(100, 1))
	of := "the window"
	if d.Resource == fairshare.CPU {
		cores := r.cores()
		if share.Cmp(big.NewRat(1, 1)) > 0 {
			r.fault(n, fmt.Sprintf("%s: 100%%", what), "%s: %s is more than 100%%, which is all of %s", what,
				shorten(n.text), coresText(cores))
			return 0
		}
		exact, _ := new(big.Rat).SetString(strconv.FormatFloat(cores, 'f', -1, 64)) // as it was written
		share.Mul(share, exact)
		of = coresText(cores)
	}
	if d.Window == 0 {
		return 0
	}
	share.Mul(share, big.NewRat(int64(d.Window), int64(time.Microsecond)))
	micros := new(big.Int).Quo(share.Num(), share.Denom())
	switch {
	case micros.Sign() == 0:
		r.fault(n, "use a larger share or a longer per", "%s: %s of %s over %s is less than a microsecond", what,
			n.text,
			of, FormatDuration(d.Window))
		return 0
	case micros.Cmp(big.NewInt(fairshare.MaxMicros)) > 0:
		r.fault(n, "use a shorter per", "%s: %s of %s over %s is more than 35 years", what, n.text, of,
			FormatDuration(d.Window))
		return 0
	}
	if what != "burst" {
		if r.file.percents == nil {
			r.file.percents = map[*fairshare.Limit]string{}
		}
		r.file.percents[d] = n.text
	}
	return micros.Int64()
}

func amountNeeded(res fairshare.Resource, n *node) string {
	of := "CPU time such as 1.05s, or a share of all cores such as 7%,"
	if res == fairshare.Time {
		of = "a time such as 30s, or a share of the window such as 50%,"
	}
	return fmt.Sprintf("%s is needed, not %s", of, n.describe())
}

// amountHint returns a fix for a text that is neither a duration nor a share.
func amountHint(s, what string, res fairshare.Resource) string {
	word := strings.ToLower(strings.TrimSpace(s))
	share := func(number string) string {
		number = strings.ReplaceAll(strings.TrimSpace(number), ",", ".")
		if percentage.MatchString(number + "%") {
			return fmt.Sprintf("%s: %s%%", what, number)
		}
		return ""
	}
	number := strings.NewReplacer("percent", "", "%", "", " ", "").Replace(word)
	switch amount, window, slash := strings.Cut(word, "/"); {
	case slash && what != "burst":
		return fmt.Sprintf("%s: %s, per: %s", what, shorten(strings.ReplaceAll(amount, " ", "")), windowText(window))
	case number != word && share(number) != "" && strings.Trim(number, "0123456789.,") == "":
		return share(number)
	case percentage.MatchString(word + "%"):
		return fmt.Sprintf("%s needs a unit: %s: %ss, or %s: %s%%", what, what, word, what, word)
	case strings.HasSuffix(word, "us") || strings.HasSuffix(word, "µs"):
		if us, err := strconv.ParseInt(strings.TrimRight(word, "uµs"), 10, 64); err == nil && us > 0 && us < 1<<40 {
			return fmt.Sprintf("%s: %s", what, formatMicros(us))
		}
	// the unit is in front of the number
	case word != "" && strings.Trim(word[1:], "0123456789.") == "" &&
		slices.Contains([]string{"s", "m", "h", "d"}, word[:1]):
		if _, ok := parseDuration(word[1:] + word[:1]); ok {
			return fmt.Sprintf("%s: %s", what, word[1:]+word[:1])
		}
	case strings.Contains(word, "core") && res == fairshare.CPU:
		return "set the number of cores by upstream: {cpu: {cores: …}}; 100% is all of them"
	}
	if meant := guessDuration(s); meant != "" {
		return fmt.Sprintf("%s: %s", what, meant)
	}
	return "units are %, ms, s, m, h and d"
}

func coresText(cores float64) string {
	if cores == 1 {
		return "1 core"
	}
	return strconv.FormatFloat(cores, 'f', -1, 64) + " cores"
}

// formatMicros returns µs as policy files write them: "4.2s".
func formatMicros(n int64) string {
	decimal := func(unit int64, name string) string {
		s := strconv.FormatInt(n/unit, 10)
		if rest := n % unit; rest > 0 {
			s += strings.TrimRight("."+strconv.FormatInt(unit+rest, 10)[1:], "0")
		}
		return s + name
	}
	switch {
	case n < 1e6:
		return decimal(1e3, "ms")
	case n < 60e6 || n%1e6 > 0:
		return decimal(1e6, "s")
	}
	return FormatDuration(time.Duration(n) * time.Microsecond)
}
