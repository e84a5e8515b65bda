// Package redislimit counts in Redis or Valkey, so that several programs enforce
// one policy together.
package redislimit
