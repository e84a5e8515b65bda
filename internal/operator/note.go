package operator

import (
	"fairshare/internal/cli"
	"fairshare/internal/prose"
)

// Note sets the note of a client. An empty text removes it.
func Note(env *cli.Environment, state, client, text string) error {
	o, err := openOrPrepare(env, state, client)
	if err != nil {
		return err
	}
	defer o.close()
	id, err := o.knownClient(client)
	if err != nil {
		return err
	}
	if err := o.create(); err != nil {
		return err
	}
	if err := o.Note(o.Context, id.ClientID, text); err != nil {
		return o.failed(err)
	}
	if text == "" {
		o.Printf("note removed: %s", id)
		return nil
	}
	o.Printf("noted: %s: %s", id, prose.Printable(text))
	o.printUndo("note " + id.argument + " ''")
	return nil
}
