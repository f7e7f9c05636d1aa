// Package examples has the example packs that the program writes.
package examples

import "embed"

// Split is a pack with split checks, in the directory split.
//
//go:embed split
var Split embed.FS
