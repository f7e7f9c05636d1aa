package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/userns"
)

// daemons begins a script in a mount namespace in which /run/containerd is empty. Its function serve starts a
// containerd there, with its process id in $daemon.
const daemons = `
mkdir -p /run/containerd
mount -t tmpfs tmpfs /run/containerd
printf 'version = 2\nroot = "%s"\nstate = "%s"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "/run/containerd/containerd.sock"\n' "$DIR/system" "$DIR/system-state" >"$DIR/system.toml"
trap 'kill -CONT "$daemon" && kill "$daemon" && wait "$daemon"' EXIT
serve() {
	"$@" containerd --config "$DIR/system.toml" >"$DIR/system.log" 2>&1 &
	daemon=$!
	for _ in $(seq 6000); do [ ! -S /run/containerd/containerd.sock ] || break; sleep 0.02; done
}
expect() { # CODE TEXT COMMAND...
	code="$1" text="$2"
	shift 2
	got=0
	"$@" >"$DIR/out" 2>&1 || got=$?
	if [ "$got" != "$code" ] || ! grep -qF -- "$text" "$DIR/out"; then
		echo "exit code $got, want $code and «$text»: $*" >&2
		cat "$DIR/out" >&2
		failed=1
	fi
}
failed=0
`

// TestSystemDaemon: sbench uses the containerd at the default socket if it can. If that lacks something, the
// message says how to fix it. If it restarts during a run, sbench waits for it.
func TestSystemDaemon(t *testing.T) {
	if userns.Inside() {
		t.Skip("an ordinary user does not use the system's containerd")
	}
	h := newHost(t)
	archive, err := containerdtest.Archive()
	must.Do(t, err)
	tests := []struct{ name, script string }{
		{"without the image", `
			serve
			expect 2 'not found in namespace "sbench" of containerd at /run/containerd/containerd.sock: import it there (sbench image import ARCHIVE), or use sbench'"'"'s own daemon and its images (--address none)' sbench run --config "$TESTER"
			expect 2 "not found in namespace \"sbench\" of sbench's own containerd" sbench --address none run --config "$TESTER"
			expect 0 "$IMAGE" sbench image import "$ARCHIVE"
			expect 0 'passed=1' sbench run --config "$TESTER"
			expect 0 '/run/containerd/containerd.sock (running before sbench)' sbench doctor`},
		{"a service of systemd's", `
			serve env NOTIFY_SOCKET="$DIR/notify" LISTEN_FDS=1
			expect 0 "$IMAGE" sbench image import "$ARCHIVE"
			expect 0 'passed=3' sbench run --config ../../benchmarks/code-completion-smoke/tester-command.yaml --output-dir "$DIR/code"`},
		{"restarts during a run", `
			serve
			expect 0 "$IMAGE" sbench image import "$ARCHIVE"
			sbench run --config "$TESTER" --attempts 6 --jobs 1 --retries 1 --progress plain >"$DIR/out" 2>"$DIR/err" &
			run=$!
			for _ in $(seq 6000); do ! grep -q '^.2/6' "$DIR/err" || break; sleep 0.02; done
			kill -KILL "$daemon"
			sleep 1 # sbench waits ten seconds, and a busy machine needs most of them to start the next
			serve
			wait "$run" || failed=1
			grep -q 'passed=6' "$DIR/out" || failed=1
			[ "$failed" = 0 ] || cat "$DIR/out" "$DIR/err"`},
		{"stopped", `
			serve
			kill -STOP "$daemon"
			expect 3 'no answer within 10s' sbench --address /run/containerd/containerd.sock run --config "$TESTER"
			expect 2 "the system's containerd cannot be used" sbench run --config "$TESTER"
			grep -q "of sbench's own containerd" "$DIR/out"`},
		{"foreign", `
			serve unshare --mount --propagation private
			expect 3 'another mount or pid namespace' sbench --address /run/containerd/containerd.sock run --config "$TESTER"
			expect 2 "the system's containerd cannot be used" sbench run --config "$TESTER"
			grep -q "of sbench's own containerd" "$DIR/out"`},
		{"missing", `
			daemon=$$
			trap - EXIT
			expect 3 'containerd at /run/containerd/containerd.sock' sbench --address /run/containerd/containerd.sock run --config "$TESTER"
			expect 2 "of sbench's own containerd" sbench run --config "$TESTER"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tester, output := h.pack(strings.Fields(tt.name)[0], containerdtest.Image)
			cmd := exec.Command("unshare", "--mount", "--propagation", "private", "bash", "-euc", daemons+tt.script+"\nexit $failed")
			for _, e := range h.env {
				if !strings.HasPrefix(e, "CONTAINERD_") {
					cmd.Env = append(cmd.Env, e)
				}
			}
			cmd.Env = append(cmd.Env, "DIR="+dir, "TESTER="+tester, "OUTPUT="+output, "ARCHIVE="+archive, "IMAGE="+containerdtest.Image,
				"SBENCH_ROOT="+filepath.Join(dir, "root"), "SBENCH_STATE="+filepath.Join(dir, "state")) // with empty stores
			must.Run(t, cmd)
			must.Do(t, os.RemoveAll(output))
		})
	}
}
