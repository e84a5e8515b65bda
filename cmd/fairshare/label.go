package main

import (
	"fmt"
	"strings"

	"fairshare"
)

const maxLabel = 40

// labelName checks the name of a label, and returns it as it is kept.
func labelName(s string) (string, error) {
	name := strings.ToLower(s)
	if name == "" || len(name) > maxLabel || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return "", fmt.Errorf("%q is no label: one is 1 to %d letters a-z, digits, . _ or -, as good-partner", s, maxLabel)
	}
	return name, nil
}

type labelCmd struct {
	registryFlag
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom."`
	Label  string `arg:"" name:"LABEL" help:"Any word, as good-partner."`
}

func (c *labelCmd) Help() string {
	return "Rules ask for it: match: {label: good-partner}. What the label of a prefix says holds for all addresses within, that of a bot where its addresses prove it."
}

// Validate is asked by kong.
func (c *labelCmd) Validate() (err error) {
	c.Label, err = labelName(c.Label)
	return err
}

func (c *labelCmd) Run(env *environment) error {
	o, err := c.say(env)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.knownClient(c.Client)
	if err != nil {
		return err
	}
	if err := o.make(); err != nil {
		return err
	}
	if err := o.Label(o.ctx, fairshare.Label{Client: id.ClientID, Name: c.Label}); err != nil {
		return o.failed(err)
	}
	o.printf("labelled: %s %s", id, c.Label)
	o.takeBack("unlabel " + id.word + " " + c.Label)
	return nil
}

type unlabelCmd struct {
	registryFlag
	Client string `arg:"" name:"ADDR|PREFIX|BOT" help:"Whose."`
	Label  string `arg:"" optional:"" name:"LABEL" help:"Which; without it all."`
}

// Validate is asked by kong.
func (c *unlabelCmd) Validate() (err error) {
	if c.Label != "" {
		c.Label, err = labelName(c.Label)
	}
	return err
}

func (c *unlabelCmd) Run(env *environment) error {
	o, err := c.change(env)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.client(c.Client)
	if err != nil {
		return err
	}
	removed, err := o.Unlabel(o.ctx, id.ClientID, c.Label)
	if err != nil {
		return o.failed(err)
	}
	if len(removed) == 0 {
		what := "no label"
		if c.Label != "" {
			what = "no label " + c.Label
		}
		return &hintError{fmt.Errorf("%s has %s", id, what), o.command("client "+id.word) + " tells which it has; labels of wider prefixes are theirs"}
	}
	o.printf("no label of %s any more: %s", id, strings.Join(removed, ", "))
	return nil
}
