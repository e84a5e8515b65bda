package main

import "strings"

type noteCmd struct {
	registryFlag
	Client string   `arg:"" name:"ADDR|PREFIX|BOT" help:"Whom it is about."`
	Text   []string `arg:"" name:"TEXT" help:"For operators; an empty text takes the note away."`
}

func (c *noteCmd) Help() string {
	return "A client has one note: the next takes its place. fairshare client shows it."
}

// Validate is asked by kong.
func (c *noteCmd) Validate() error { return ownText("the note", c.text()) }

func (c *noteCmd) text() string { return strings.TrimSpace(strings.Join(c.Text, " ")) }

func (c *noteCmd) Run(env *environment) error {
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
	if err := o.Note(o.ctx, id.ClientID, c.text()); err != nil {
		return o.failed(err)
	}
	if c.text() == "" {
		o.printf("no note any more: %s", id)
		return nil
	}
	o.printf("noted: %s: %s", id, c.text())
	o.takeBack("note " + id.word + " ''")
	return nil
}
