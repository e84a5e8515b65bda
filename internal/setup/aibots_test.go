package setup

import (
	"testing"

	"fairshare/bots"
)

func TestPurposesOfAIBots(t *testing.T) {
	t.Parallel()
	b := &BotIdentifier{Table: bots.BuiltIn()}
	for name, want := range map[string][2]string{
		"gptbot":        {"OpenAI", "training"},
		"oai-searchbot": {"OpenAI", "search"},
		"chatgpt-user":  {"OpenAI", "user"},
		"bytespider":    {"ByteDance", "training"},
		"googlebot":     {"", ""},
		"mj12bot":       {"", ""},
		"nothing":       {"", ""},
	} {
		if operator, purpose := b.AI(name); operator != want[0] || purpose != want[1] {
			t.Errorf("%s: %q, %q, want %q", name, operator, purpose, want)
		}
	}
}
