package logreplay

import (
	"cmp"
	"slices"

	"fairshare/bots"
	"fairshare/internal/replay"
)

// aiPurpose returns the operator and the purpose of an AI bot of the table; the purpose of any
// other bot is "".
func aiPurpose(table *bots.Table) func(name string) (operator, purpose string) {
	return func(name string) (operator, purpose string) {
		b := table.Bot(name)
		switch {
		case b == nil || !slices.Contains(b.Categories, "ai"):
			return "", ""
		case b.UserTriggered || slices.Contains(b.Categories, "fetcher"):
			purpose = replay.ByUser
		case slices.Contains(b.Categories, "search"):
			purpose = replay.Search
		default:
			purpose = replay.Training
		}
		return cmp.Or(b.Operator, b.Name), purpose
	}
}
