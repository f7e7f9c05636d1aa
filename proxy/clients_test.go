package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy"
)

// TestClients: programs reach the network through the environment variables alone,
// or in transparent mode without them.
func TestClients(t *testing.T) {
	const urllib = `import ssl, urllib.request, urllib.error
context = ssl._create_unverified_context()
try:
    result = urllib.request.build_opener(urllib.request.ProxyHandler(), urllib.request.HTTPSHandler(context=context)).open(%q, timeout=20).read().decode()
except urllib.error.HTTPError as e:
    result = [e.code, e.headers['X-Sbench-Egress'], e.read().decode()]
`
	const git = `import subprocess
p = subprocess.run(['git', '-c', 'http.sslVerify=false', 'ls-remote', %q], capture_output=True, text=True, env=dict(__import__('os').environ, GIT_TERMINAL_PROMPT='0'))
result = p.stderr`
	tests := []struct{ name, code, want, log string }{
		{"urllib", fmt.Sprintf(urllib, "http://allowed.test/x"), "HIT host=allowed.test", "http allow"},
		{"urllib, refused", fmt.Sprintf(urllib, "http://evil.test/x"), `[403, "host_not_allowed", "sbench refused evil.test:80`, "http deny host_not_allowed"},
		{"urllib by TLS", fmt.Sprintf(urllib, "https://allowed.test/x"), "HIT host=allowed.test sni=allowed.test", "connect allow"},
		{"urllib by TLS, refused", fmt.Sprintf(urllib, "https://evil.test/x"), "Tunnel connection failed: 403", "connect deny host_not_allowed"},
		{"git", fmt.Sprintf(git, "https://allowed.test/x.git"), "fatal", "connect allow"},
		{"git, refused", fmt.Sprintf(git, "https://evil.test/x.git"), "403", "connect deny host_not_allowed"},
	}
	for _, transparent := range []bool{false, true} {
		w := newWorld(t)
		p, log := w.startProxy(proxy.Config{})
		s := newSandbox(t, p, transparent)
		variables := "import os\n"
		for _, v := range proxy.Environment("127.0.0.1:3128", nil) {
			name, value, _ := strings.Cut(v, "=")
			if transparent {
				break
			}
			variables += fmt.Sprintf("os.environ[%q] = %q\n", name, value)
		}
		for _, tt := range tests {
			if transparent && strings.Contains(tt.name, "refused") {
				continue // the name does not resolve: see TestTransparentNames
			}
			t.Run(fmt.Sprintf("transparent=%v/%s", transparent, tt.name), func(t *testing.T) {
				s.t = t
				want := tt.log
				if transparent {
					want = "transparent allow"
				}
				got := s.ask(ask{Code: variables + tt.code})
				if !strings.Contains(got, strings.ReplaceAll(tt.want, "\n", "\\n")) {
					t.Errorf("got %s, want %s in it", got, tt.want)
				}
				e := log.next(t)
				for e.Kind == proxy.KindDNS {
					e = log.next(t)
				}
				if words(e) != want {
					t.Errorf("log: %+v, want %q", e, want)
				}
			})
		}
		s.t = t
	}
}
