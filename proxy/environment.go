package proxy

import (
	"fmt"
	"net"
	"strings"
)

// Environment returns the variables, as NAME=value, that make a sandbox's programs use the
// proxy at address, a "host:port", except for the sandbox's own loopback addresses. It returns each
// variable in upper and lower case, since programs differ.
func Environment(address string) []string {
	var env []string
	url := "http://" + address
	for _, v := range [][2]string{
		{"HTTP_PROXY", url}, {"HTTPS_PROXY", url}, {"ALL_PROXY", url}, {"NO_PROXY", "127.0.0.1,localhost,::1"},
	} {
		env = append(env, v[0]+"="+v[1], strings.ToLower(v[0])+"="+v[1])
	}
	host, port, _ := net.SplitHostPort(address)
	java := fmt.Sprintf("-Dhttp.proxyHost=%[1]s -Dhttp.proxyPort=%[2]s -Dhttps.proxyHost=%[1]s -Dhttps.proxyPort=%[2]s -Dhttp.nonProxyHosts=localhost|127.*|[::1]", host, port)
	return append(env, "NODE_USE_ENV_PROXY=1", "JAVA_TOOL_OPTIONS="+java)
}
