package main

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

// mostClients bounds the clients of one command. Longer lists belong into a file that the policy
// names (lists).
const mostClients = 10000

// forEach calls do for each client that the arguments name; "-" reads clients from standard input.
// All are checked before the first call, so that a typing error changes nothing. An error of do is
// printed, and the other clients follow.
func (f *registryFlag) forEach(env *cli.Environment, args []string, do func(client string) error) error {
	clients, err := readClients(env, args)
	if err != nil {
		return err
	}
	if len(clients) == 1 {
		return do(clients[0])
	}
	if err := operator.CheckClients(env, f.State, clients); err != nil {
		return err
	}
	var failed error
	for _, client := range clients {
		if env.Context.Err() != nil {
			return cli.ErrReported
		}
		if err := do(client); err != nil {
			cli.PrintError(env.Stderr, err)
			failed = cli.ErrReported
		}
	}
	return failed
}

// readClients replaces "-" with the first word of each line of standard input. Lines that are
// empty or start with # do not count.
func readClients(env *cli.Environment, args []string) (clients []string, err error) {
	for i, arg := range args {
		if arg != "-" {
			clients = append(clients, arg)
			continue
		}
		if slices.Contains(args[i+1:], "-") {
			return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("standard input (-) can be read only once"),
				"give - once"))
		}
		in := bufio.NewScanner(env.Stdin)
		for in.Scan() && len(clients) <= mostClients {
			text, _, _ := strings.Cut(in.Text(), "#")
			if words := strings.Fields(text); len(words) > 0 {
				clients = append(clients, words[0])
			}
		}
		if err := in.Err(); err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
	}
	switch {
	case len(clients) == 0:
		return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("standard input names no client"),
			"one address a line is needed"))
	case len(clients) > mostClients:
		return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("more than %d clients", mostClients),
			"a long list belongs into a file: lists: {name: {file: …}} in the policy"))
	}
	return clients, nil
}
