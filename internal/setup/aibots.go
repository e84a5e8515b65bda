package setup

import (
	"cmp"
	"slices"
)

// AI returns the operator of an AI bot of the table and what it fetches pages for: "training",
// "search", or "user" for a person's request. The purpose of any other bot is "".
func (b *BotIdentifier) AI(name string) (operator, purpose string) {
	bot := b.Table.Bot(name)
	switch {
	case bot == nil || !slices.Contains(bot.Categories, "ai"):
		return "", ""
	case bot.UserTriggered || slices.Contains(bot.Categories, "fetcher"):
		purpose = "user"
	case slices.Contains(bot.Categories, "search"):
		purpose = "search"
	default:
		purpose = "training"
	}
	return cmp.Or(bot.Operator, bot.Name), purpose
}
