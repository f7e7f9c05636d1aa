package proxy

import (
	"fmt"
	"net"
	"strings"
)

// Environment returns the variables, as NAME=value, that make a sandbox's programs use the
// proxy at address, a "host:port", except for the sandbox's own loopback addresses and their further names. It
// returns each variable in upper and lower case, since programs differ.
func Environment(address string, names []string) []string {
	var env []string
	url, own := "http://"+address, append([]string{"127.0.0.1", "localhost", "::1"}, names...)
	for _, v := range [][2]string{
		{"HTTP_PROXY", url}, {"HTTPS_PROXY", url}, {"ALL_PROXY", url}, {"NO_PROXY", strings.Join(own, ",")},
	} {
		env = append(env, v[0]+"="+v[1], strings.ToLower(v[0])+"="+v[1])
	}
	host, port, _ := net.SplitHostPort(address)
	java := fmt.Sprintf("-Dhttp.proxyHost=%[1]s -Dhttp.proxyPort=%[2]s -Dhttps.proxyHost=%[1]s -Dhttps.proxyPort=%[2]s -Dhttp.nonProxyHosts=localhost|127.*|[::1]%[3]s", host, port, strings.Join(append([]string{""}, names...), "|"))
	return append(env, "NODE_USE_ENV_PROXY=1", "JAVA_TOOL_OPTIONS="+java)
}
