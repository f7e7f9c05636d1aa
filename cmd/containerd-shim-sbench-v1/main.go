// Command containerd-shim-sbench-v1 is sbench's shim, which containerd executes; see package
// shim. In sandboxes it also is run-candidate and with-services; see [service.Inside]. People have no use for it.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/runtime/shim"
)

var version = "devel" // set by the linker

func main() {
	service.Inside()
	var call shim.Call
	flags := flag.NewFlagSet(shim.Program, flag.ExitOnError)
	flags.StringVar(&call.Namespace, "namespace", "", "the daemon's namespace")
	flags.StringVar(&call.ID, "id", "", "the container's id")
	flags.StringVar(&call.Address, "address", "", "the daemon's socket")
	flags.StringVar(&call.Bundle, "bundle", "", "the container's directory")
	flags.String("publish-binary", "", "ignored")
	flags.Bool("debug", false, "ignored")
	showVersion := flags.Bool("v", false, "print the version")
	_ = flags.Parse(os.Args[1:]) // it exits
	if *showVersion {
		fmt.Println(shim.Program, version)
		return
	}
	if err := act(call, flags.Arg(0)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", shim.Program, err)
		os.Exit(1)
	}
}

func act(call shim.Call, action string) error {
	switch action {
	case "start":
		return call.Start(os.Stdout)
	case "delete":
		return call.Delete(os.Stdout)
	case "serve":
		return call.Serve()
	}
	return fmt.Errorf("action %q: containerd calls this program with start or delete", action)
}
