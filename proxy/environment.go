package proxy

import "strings"

// Environment returns the variables, as NAME=value, that lead the programs of a
// sandbox to the proxy at the address "host:port", in both of the spellings that
// are in use. Connections to the sandbox itself stay in it.
func Environment(address string) []string {
	var env []string
	url := "http://" + address
	for _, v := range [][2]string{
		{"HTTP_PROXY", url}, {"HTTPS_PROXY", url}, {"ALL_PROXY", url}, {"NO_PROXY", "127.0.0.1,localhost,::1"},
	} {
		env = append(env, v[0]+"="+v[1], strings.ToLower(v[0])+"="+v[1])
	}
	return append(env, "NODE_USE_ENV_PROXY=1")
}
