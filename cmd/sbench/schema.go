package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/securebench/sbench/docs"
)

type schemaCmd struct {
	Name string `arg:"" optional:"" help:"Name of the schema, such as tester. Default: print the names."`
	JSON bool   `name:"json" help:"Print the names as JSON. A schema is always JSON."`
}

func (cmd *schemaCmd) Run(a *app) error {
	const suffix = ".schema.json"
	files, err := fs.Glob(docs.Schemas, "schemas/*"+suffix)
	if err != nil {
		return err
	}
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(file, "schemas/"), suffix)
	}
	if cmd.Name == "" {
		return printList(a, cmd.JSON, names, func(name string) string { return name })
	}
	i := slices.Index(names, cmd.Name)
	if i < 0 {
		return fmt.Errorf("%w: no schema %q; there are %s", errUsage, cmd.Name, strings.Join(names, ", "))
	}
	text, err := docs.Schemas.ReadFile(files[i])
	if err == nil {
		_, err = a.stdout.Write(text)
	}
	return err
}
