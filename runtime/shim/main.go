package shim

import (
	"flag"
	"fmt"
	"os"
)

// Main is the shim's program: it does what the command line that containerd wrote asks for. It returns the exit status.
func Main(version string) int {
	var call Call
	flags := flag.NewFlagSet(Program, flag.ExitOnError)
	flags.StringVar(&call.Namespace, "namespace", "", "the daemon's namespace")
	flags.StringVar(&call.ID, "id", "", "the container's id")
	flags.StringVar(&call.Address, "address", "", "the daemon's socket")
	flags.StringVar(&call.Bundle, "bundle", "", "the container's directory")
	flags.String("publish-binary", "", "ignored")
	flags.Bool("debug", false, "ignored")
	showVersion := flags.Bool("v", false, "print the version")
	_ = flags.Parse(os.Args[1:]) // it exits
	if *showVersion {
		fmt.Println(Program, version)
		return 0
	}
	if err := call.act(flags.Arg(0)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Program, err)
		return 1
	}
	return 0
}

func (c Call) act(action string) error {
	switch action {
	case "start":
		return c.Start(os.Stdout)
	case "delete":
		return c.Delete(os.Stdout)
	case "serve":
		return c.Serve()
	}
	return fmt.Errorf("action %q: containerd calls this program with start or delete", action)
}
