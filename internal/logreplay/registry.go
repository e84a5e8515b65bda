package logreplay

import (
	"errors"
	"fmt"
	"strings"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/operator"
	"fairshare/internal/registrar"
	"fairshare/internal/replay"
	"fairshare/internal/setup"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// useRegistry adds labels and operators' decisions to the options, if a state
// folder was named and has a registry. It warns of labels that no client has.
func (s *session) useRegistry(options *replay.Options) ([]replay.Warning, error) {
	if s.State == "" {
		return nil, nil
	}
	dir, err := setup.StateFolder(s.State)
	if err != nil {
		return nil, err
	}
	ctx := s.env.Context
	stored, err := setup.OpenRegistry(ctx, dir, s.env.Clock(),
		sqlregistry.Options{ReadOnly: true, MustExist: true, Log: s.log})
	if errors.Is(err, registry.ErrMissing) {
		s.log(fmt.Sprintf("no registry in %s: the replay has no labels and no decisions of operators", s.State))
		return nil, nil
	}
	if err != nil {
		return nil, registryError(err, dir)
	}
	defer stored.Close()
	overrides, labels, err := stored.Overrides(ctx)
	if err != nil {
		return nil, registryError(err, dir)
	}
	options.Override = registrar.NewOverrides(overrides, labels).Override
	return unknownLabels(options.Policy, labels), nil
}

// registryError adds a hint to the error of a registry that cannot be read.
func registryError(err error, dir string) error {
	err = operator.RegistryError(dir, err)
	var hinted *cli.HintError
	if errors.As(err, &hinted) {
		hinted.Hint += "; a replay without --state does not need it"
	}
	return err
}

// unknownLabels warns of labels that rules match and no client has, once for
// each label.
func unknownLabels(policy *fairshare.Policy, labels []registry.Label) (warnings []replay.Warning) {
	known := map[string]bool{}
	for _, l := range labels {
		known[l.Name] = true
	}
	var look func(rule string, m *fairshare.Match)
	look = func(rule string, m *fairshare.Match) {
		for _, text := range m.Label {
			if name := strings.ToLower(text); !known[name] && !strings.HasPrefix(text, "re:") {
				known[name] = true // the next rule gives no second warning
				warnings = append(warnings, replay.Warning{
					Text: fmt.Sprintf("No client has the label %s, which rule %q looks at.", name, rule),
					Hint: "fairshare label ADDR " + name + " gives it to one",
				})
			}
		}
		for i := range m.Not {
			look(rule, &m.Not[i])
		}
	}
	for i := range policy.Rules {
		r := &policy.Rules[i]
		look(r.Name, &r.Match)
		if r.Ban != nil && r.Ban.Unless != nil {
			look(r.Name, r.Ban.Unless)
		}
	}
	return warnings
}
