// Package amount writes amounts of a limit's resource, and what limits allow,
// as people read them. Start with Of.
package amount

import (
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// Of writes an amount of a resource, which is called as in policy files:
// "1.05 s of CPU", "3 requests". Amounts of cpu and time are in microseconds.
func Of(resource string, n int64) string {
	switch resource {
	case "cpu":
		return Seconds(n) + " of CPU"
	case "time":
		return Seconds(n) + " of the site's time"
	case "bytes":
		return prose.Size(n)
	case "cost":
		return prose.Counted(n, "unit of cost", "units of cost")
	case "concurrent":
		return prose.Plural(n, "request") + " in progress"
	}
	return prose.Plural(n, strings.TrimSuffix(resource, "s"))
}

// Seconds writes an amount of cpu or time, in microseconds, without the resource:
// "1.05 s".
func Seconds(micros int64) string { return prose.Seconds(time.Duration(micros) * time.Microsecond) }

// Allowance writes what a limit allows: "1.05 s of CPU in 15s, by addr".
func Allowance(l *fairshare.Limit) string {
	resource := l.Resource.String()
	text := Of(resource, l.N)
	if l.Window > 0 {
		text += " in " + prose.ExactDuration(l.Window)
	}
	if l.Allowed() != l.N {
		text += ", " + Of(resource, l.Allowed()) + " at once"
	}
	return text + ", by " + Key(l.By)
}

// Key writes what a limit counts by: "network and addr". Without parts it is
// "addr", the default.
func Key(by []fairshare.KeyPart) string {
	if len(by) == 0 {
		return "addr"
	}
	parts := make([]string, len(by))
	for i, part := range by {
		parts[i] = part.String()
	}
	return strings.Join(parts, " and ")
}
