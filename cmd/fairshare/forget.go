package main

import (
	"fmt"
	"strings"

	"fairshare/sqlregistry"
)

type forgetCmd struct {
	registryFlag
	Force  bool   `help:"Even everybody within a very wide prefix."`
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom; of a prefix all within."`
}

func (c *forgetCmd) Help() string {
	return "Removes all that is known: numbers, bans, stories, words, labels and notes. It comes back as a new client. Counters of limits run out by themselves."
}

func (c *forgetCmd) Run(env *environment) error {
	o, err := c.change(env)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(c.Client)
	if err != nil {
		return err
	}
	if whom := tooWide(id.ClientID); whom != "" && !c.Force {
		return &hintError{fmt.Errorf("%s is %s, with all words, labels and notes about them", id, whom), "--force does it all the same"}
	}
	gone, err := o.Forget(o.ctx, id.ClientID, o.now)
	if err != nil {
		return o.failed(err)
	}
	if gone == (sqlregistry.Forgotten{}) {
		if id.err != nil {
			return id.err
		}
		return fmt.Errorf("nothing is known of %s", id)
	}
	var parts []string
	for _, p := range []struct {
		n         int
		one, more string
	}{
		{gone.Clients, "client", "clients"},
		{gone.Bans, "ban or former ban", "bans and former bans"},
		{gone.Stories, "story", "stories"},
		{gone.Labels, "label", "labels"},
	} {
		if p.n > 0 {
			parts = append(parts, counted(p.n, p.one, p.more))
		}
	}
	if gone.Said {
		parts = append(parts, "what operators said")
	}
	o.printf("forgotten: %s: %s", id, strings.Join(parts, ", "))
	return nil
}
