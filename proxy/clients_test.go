package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy"
)

// TestClients: programs reach the network through the environment variables alone, or in transparent mode without
// them. TestCommandWayOut of cmd/sbench has the refusals.
func TestClients(t *testing.T) {
	const urllib = `import ssl, urllib.request
context = ssl._create_unverified_context()
result = urllib.request.build_opener(urllib.request.ProxyHandler(), urllib.request.HTTPSHandler(context=context)).open(%q, timeout=20).read().decode()`
	const git = `import subprocess
p = subprocess.run(['git', '-c', 'http.sslVerify=false', 'ls-remote', 'https://allowed.test/x.git'], capture_output=True, text=True, env=dict(__import__('os').environ, GIT_TERMINAL_PROMPT='0'))
result = p.stderr`
	for _, transparent := range []bool{false, true} {
		w := newWorld(t)
		p, log := w.startProxy(proxy.Config{})
		s := newSandbox(t, p, transparent)
		variables := "import os\n"
		for _, v := range proxy.Environment("127.0.0.1:3128", nil) {
			name, value, _ := strings.Cut(v, "=")
			variables += fmt.Sprintf("os.environ[%q] = %q\n", name, value)
		}
		if transparent {
			variables = ""
		}
		for _, tt := range []struct{ name, code, want, log string }{
			{"urllib", fmt.Sprintf(urllib, "http://allowed.test/x"), "HIT host=allowed.test", "http allow"},
			{"urllib by TLS", fmt.Sprintf(urllib, "https://allowed.test/x"), "HIT host=allowed.test sni=allowed.test", "connect allow"},
			{"git", git, "fatal", "connect allow"},
		} {
			t.Run(fmt.Sprintf("transparent=%v/%s", transparent, tt.name), func(t *testing.T) {
				s.t = t
				if transparent {
					tt.log = "transparent allow"
				}
				if got := s.ask(ask{Code: variables + tt.code}); !strings.Contains(got, tt.want) {
					t.Errorf("got %s, want %s in it", got, tt.want)
				}
				e := log.next(t)
				for e.Kind == proxy.KindDNS {
					e = log.next(t)
				}
				if words(e) != tt.log {
					t.Errorf("log: %+v, want %q", e, tt.log)
				}
			})
		}
		s.t = t
	}
}
