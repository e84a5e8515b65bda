package logreplay

import (
	"fairshare/internal/cli"
	"fairshare/internal/replay"
)

// BuiltIn is the name of the built-in policy in a comparison.
const BuiltIn = "default"

// Compare replays the logs with the policy file before and then with opts.Policy, and prints who
// is refused by one of them and not by the other. Either may be [BuiltIn].
func Compare(env *cli.Environment, before string, opts Options) error {
	file := func(name string) string {
		if name == BuiltIn {
			return ""
		}
		return name
	}
	after := opts.Policy
	old := opts
	old.Policy, opts.Policy = file(before), file(after)
	trail := new(replay.Trail)
	s, err := open(env, old)
	if err != nil {
		return err
	}
	defer s.identifier.Close(nil)
	if err := s.canRepeat(); err != nil {
		return err
	}
	options, _, err := s.options()
	if err != nil {
		return err
	}
	options.Trail = trail
	if _, err := s.replay(options, nil); err != nil {
		return err
	}
	if s, err = open(env, opts); err != nil {
		return err
	}
	defer s.identifier.Close(nil)
	options, warnings, err := s.options()
	if err != nil {
		return err
	}
	options.Before = trail
	report, err := s.replay(options, nil)
	if err != nil {
		return err
	}
	report.Warnings = append(report.Warnings, s.dns.warnings()...)
	report.Warnings = append(report.Warnings, warnings...)
	if s.JSON {
		return report.WriteJSON(env.Stdout)
	}
	width, color := cli.Terminal(env.Stdout)
	return report.WriteDifference(env.Stdout, before, after, replay.Style{Width: width, Colour: color})
}
