// Package acmetest tests certificates by ACME with pebble, the test CA of Let's
// Encrypt: a module of its own, because only tests need the CA.
package acmetest
