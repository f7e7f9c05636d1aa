// Command containerd-shim-sbench-v1 is sbench's shim, which containerd executes; see package
// shim. People have no use for it.
package main

import (
	"os"

	"github.com/securebench/sbench/runtime/shim"
)

var version = "devel" // set by the linker

func main() { os.Exit(shim.Main(version)) }
