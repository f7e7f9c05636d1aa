// Package docs has the parts of the documentation that the program prints.
package docs

import "embed"

// Schemas holds the JSON schemas of what people and sbench write, as schemas/*.schema.json.
//
//go:embed schemas/*.schema.json
var Schemas embed.FS
