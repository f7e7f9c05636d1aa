package sandbox_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/sandbox"
)

// machineShell runs a shell script in a machine on an image, and returns the sandbox and what the
// script printed. Its capabilities are those of package managers.
func machineShell(t *testing.T, run *sandbox.Engine, image runtime.Image, script string) (runtime.Sandbox, string) {
	t.Helper()
	sandbox, err := run.Create(t.Context(), runtime.Config{
		Name: "machine", Image: image, Machine: true, Limits: runtime.Limits{LayerBytes: 128 << 20}.Over(runtime.DefaultLimits()),
		Capabilities: []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID"},
	})
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, sandbox.Close(context.Background())) })
	if _, err := sandbox.Changes(); err == nil {
		t.Error("changes before the process")
	}
	exit, err := sandbox.Exec(t.Context(), runtime.Process{Args: []string{"sh", "-euc", script}, Wall: time.Minute})
	if err != nil || !exit.Success() {
		t.Fatalf("%v, %v: %s%s", exit, err, exit.Stdout, exit.Stderr)
	}
	return sandbox, exit.Stdout.String()
}

// TestMachine: what a sandbox changed in its image, stored as a layer and put over the image
// again, is what the next sandbox sees, with the same owners.
func TestMachine(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	linked := ""
	if os.Getuid() == 0 { // the kernel does not find the originals of copied files for an ordinary user
		linked = "ln /etc/issue.net /same; test /same -ef /etc/issue.net; rm /same\n"
	}
	// User 1234 and group 4321 may read the file (acl(5): the version, then tag, permissions and id of each entry).
	const acl = "0200000001000600ffffffff02000400d204000004000400ffffffff08000400e110000010000400ffffffff20000000ffffffff"
	first, _ := machineShell(t, run, image, linked+`mkdir /made /run/state; echo one > /made/one; echo two > /tmp/two; echo three > /run/state/three
		chown 1000:1001 /made/one; chmod 640 /made/one; python3 -c 'import os; os.setxattr("/made/one", "system.posix_acl_access", bytes.fromhex("`+acl+`"))'; rm /etc/issue; rm -r /var/cache; mkdir /var/cache; echo x > /var/cache/x; ln -s made/one /link; ln /made/one /hard
		touch /etc/passwd-; echo y >> /etc/motd; setpriv --reuid 1000 --regid 1001 --clear-groups id -u > /made/id`)
	changes, err := first.Changes()
	must.Do(t, err)
	if !slices.Contains(changes.Mounts, "/etc/resolv.conf") || !strings.HasSuffix(changes.Dir, "upper") {
		t.Errorf("%+v", changes)
	}
	var text bytes.Buffer
	limits := layer.Budget{Bytes: 64 << 20, Entries: 10000}
	_, err = layer.Write(t.Context(), &text, changes, limits)
	must.Do(t, err)
	packed, err := zstd.NewReader(bytes.NewReader(text.Bytes()))
	must.Do(t, err)
	plain, err := io.ReadAll(packed)
	must.Do(t, err)
	if ids, err := hex.DecodeString(acl); err != nil || !bytes.Contains(plain, ids) {
		t.Errorf("the layer has other ids in the access list: %v", err)
	}
	vol, err := run.NewVolume(t.Context(), runtime.VolumeConfig{Bytes: 128 << 20, Inodes: 20000})
	must.Do(t, err)
	defer func() { must.Report(t, vol.Close()) }()
	over := image
	over.UpperDir = filepath.Join(vol.Path(), "machine")
	must.Report(t, os.Mkdir(over.UpperDir, 0o755))
	to, err := os.OpenRoot(over.UpperDir)
	must.Do(t, err)
	view, err := run.View(t.Context(), image)
	must.Do(t, err)
	must.Report(t, layer.Apply(t.Context(), &text, to, view.Root(), limits, nil))
	must.Report(t, view.Close())
	must.Report(t, to.Close())
	const look = `python3 -c 'import os; print(os.getxattr("/made/one", "system.posix_acl_access").hex())'; cat /made/one /tmp/two /run/state/three /made/id; stat -c '%u:%g %a %h' /made/one; ls /var/cache; readlink /link; test -e /etc/issue && echo issue; tail -n 1 /etc/motd; stat -c %a /tmp`
	second, got := machineShell(t, run, over, look)
	must.Equal(t, acl+"\none\ntwo\nthree\n1000\n1000:1001 640 2\nx\nmade/one\ny\n1777\n", got)
	if view, err = run.View(t.Context(), over); err == nil {
		_, err = view.Root().Lstat("made/one")
		must.Report(t, view.Close())
	}
	must.Report(t, err)
	must.Report(t, second.Close(context.Background()))
}

// TestSocketsOfKeptProcesses: a machine beside kept processes reaches the UNIX sockets among their files, and no socket
// keeps the machine from starting.
func TestSocketsOfKeptProcesses(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	create := func(cfg runtime.Config) runtime.Sandbox {
		cfg.Image, cfg.Machine = image, true
		cfg.Limits = runtime.Limits{LayerBytes: 128 << 20}.Over(runtime.DefaultLimits())
		sandbox, err := run.Create(t.Context(), cfg)
		must.Do(t, err)
		t.Cleanup(func() { must.Report(t, sandbox.Close(context.Background())) })
		return sandbox
	}
	first := create(runtime.Config{Name: "first", KeepProcesses: true, Capabilities: []string{"CAP_FOWNER"}})
	exec := func(in runtime.Sandbox, script string) string {
		exit, err := in.Exec(t.Context(), runtime.Process{Args: []string{"python3", "-c", script}, Wall: time.Minute})
		if err != nil || !exit.Success() {
			t.Fatalf("%v, %v: %s%s", exit, err, exit.Stdout, exit.Stderr)
		}
		return exit.Stdout.String()
	}
	exec(first, `import os, shutil, socket
def listen(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    os.chdir(os.path.dirname(path))
    server.bind(os.path.basename(path))
    server.listen()
    return server
os.remove("/etc/issue")
os.symlink("/usr", "/srv/link")
servers = [listen(p) for p in ("/srv/a.sock", "/etc/issue/b.sock", "/usr/c.sock", "/srv/link/d.sock", "/" + "/".join(["d" * 250] * 15) + "/e.sock")]
os.mkdir("/srv/f.sock")
if os.fork() == 0:
    while True:
        connection, _ = servers[0].accept()
        connection.sendall(b"answered")
        connection.close()
`)
	second := create(runtime.Config{Name: "second", NetworkOf: first, ReadOnly: []string{"/usr"}})
	got := exec(second, `import os, socket
client = socket.socket(socket.AF_UNIX)
client.connect("/srv/a.sock")
print(client.recv(100).decode(), os.path.exists("/usr/c.sock"), os.listdir("/srv"))
`)
	must.Equal(t, "answered False ['a.sock']\n", got)
}

// TestFullBesideKeptProcesses: processes are suspended as soon as the layer is full, although they have not settled.
func TestFullBesideKeptProcesses(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	run.PutLayersOnDisk()
	sandbox, err := run.Create(t.Context(), runtime.Config{
		Name: "full", Image: image, Machine: true, KeepProcesses: true, Limits: runtime.Limits{LayerBytes: 16 << 20}.Over(runtime.DefaultLimits()),
	})
	must.Do(t, err)
	defer func() { must.Report(t, sandbox.Close(context.Background())) }()
	const script = "(while sleep 0.01; do head -c 1M /dev/zero >> /srv/full; done) >/dev/null 2>&1 &"
	_, err = sandbox.Exec(t.Context(), runtime.Process{Args: []string{"sh", "-c", script}, Wall: time.Minute})
	must.Do(t, err)
	changes, err := sandbox.Changes()
	must.Do(t, err)
	info, err := os.Stat(filepath.Join(changes.Dir, "srv/full"))
	must.Do(t, err)
	if info.Size() > 150<<20 {
		t.Errorf("%d bytes", info.Size())
	}
}
