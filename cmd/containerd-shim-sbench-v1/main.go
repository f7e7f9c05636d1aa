// Command containerd-shim-sbench-v1 is sbench's shim, which containerd executes; see package
// shim. In sandboxes it also is run-candidate and with-services; see [service.Inside]. People have no use for it.
package main

import (
	"os"

	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/runtime/shim"
)

var version = "devel" // set by the linker

func main() {
	service.Inside()
	os.Exit(shim.Main(version))
}
