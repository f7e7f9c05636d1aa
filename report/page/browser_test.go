package page_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A browser is a headless Chromium, driven over a pipe with the DevTools protocol.
type browser struct {
	t       *testing.T
	out     *os.File
	in      *bufio.Reader
	id      int
	session string
	events  []message // received while call waited for an answer
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Session string `json:"sessionId,omitempty"`
}

type object map[string]any

// open starts a browser with an empty page. Without Chromium the test is skipped, or
// fails in CI.
func open(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("short: no browser")
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no chromium in PATH: install Debian's package chromium")
		}
		t.Skip("SKIPPED, nothing was tested: no chromium in PATH; Debian's package chromium has it")
	}
	toBrowser, out := pipe(t)
	in, fromBrowser := pipe(t)
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "--hide-scrollbars", "about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser}
	check(t, cmd.Start())
	check(t, errors.Join(toBrowser.Close(), fromBrowser.Close()))
	b := &browser{t: t, out: out, in: bufio.NewReader(in)}
	t.Cleanup(func() {
		b.session = ""
		b.call("Browser.close", nil, nil)
		_ = cmd.Wait() // it may be ended by a signal
		check(t, errors.Join(out.Close(), in.Close()))
	})
	b.attach()
	return b
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	check(t, err)
	return r, w
}

func (b *browser) attach() {
	var target struct{ TargetID string }
	b.call("Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page.enable", "Runtime.enable", "Log.enable", "Network.enable"} {
		b.call(domain, nil, nil)
	}
}

// call sends a command and waits for its answer.
func (b *browser) call(method string, params object, result any) {
	b.t.Helper()
	b.id++
	request := object{"id": b.id, "method": method, "params": params}
	if params == nil {
		request["params"] = object{}
	}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	data, err := json.Marshal(request)
	check(b.t, err)
	_, err = b.out.Write(append(data, 0))
	check(b.t, err)
	for {
		m := b.read()
		if m.ID != b.id {
			b.events = append(b.events, m)
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			check(b.t, json.Unmarshal(m.Result, result))
		}
		return
	}
}

func (b *browser) read() message {
	b.t.Helper()
	data, err := b.in.ReadBytes(0)
	check(b.t, err)
	var m message
	check(b.t, json.Unmarshal(data[:len(data)-1], &m))
	return m
}

// wait waits for an event.
func (b *browser) wait(method string) {
	b.t.Helper()
	for _, m := range b.events {
		if m.Method == method {
			return
		}
	}
	for {
		m := b.read()
		b.events = append(b.events, m)
		if m.Method == method {
			return
		}
	}
}

// load opens a file.
func (b *browser) load(name, hash string) {
	b.t.Helper()
	b.visit("file://" + name + hash)
}

// visit opens an address.
func (b *browser) visit(address string) {
	b.t.Helper()
	b.events = nil
	b.call("Page.navigate", object{"url": "about:blank"}, nil)
	b.wait("Page.loadEventFired")
	b.events = nil
	b.call("Page.navigate", object{"url": address}, nil)
	b.wait("Page.loadEventFired")
}

// eval returns the value of an expression: a string as it is, anything else as JSON.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", object{"expression": expression, "returnByValue": true, "awaitPromise": true, "allowUnsafeEvalBlockedByCSP": false}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s %s", expression, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	var text string
	if json.Unmarshal(r.Result.Value, &text) == nil {
		return text
	}
	return string(r.Result.Value)
}

// want checks the value of an expression.
func (b *browser) want(expression, want string) {
	b.t.Helper()
	if got := b.eval(expression); got != want {
		b.t.Errorf("%s is %q, want %q", expression, got, want)
	}
}

// press types keys: names such as ArrowDown, or single characters. It returns after the
// page has handled them, and any change of address that they caused.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.strike(key)
		b.settle()
	}
}

// strike types a key and does not wait for what the page does with it.
func (b *browser) strike(key string) {
	b.t.Helper()
	down := object{"type": "rawKeyDown", "key": key, "code": key}
	if len(key) == 1 {
		down["type"], down["text"] = "keyDown", key
	}
	if key == "Enter" {
		down["type"], down["text"], down["windowsVirtualKeyCode"] = "keyDown", "\r", 13
	}
	b.call("Input.dispatchKeyEvent", down, nil)
	b.call("Input.dispatchKeyEvent", object{"type": "keyUp", "key": key, "code": key}, nil)
}

// settle waits until the page has been drawn twice, which is after all events so far.
func (b *browser) settle() {
	b.t.Helper()
	b.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(1)))))")
}

// said returns what the page reported: messages, exceptions, and requests that it made or
// that its policy blocked.
func (b *browser) said() []string {
	b.eval("1") // earlier events come before the answer
	var list []string
	for _, m := range b.events {
		switch m.Method {
		case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening":
			list = append(list, m.Method+" "+string(m.Params))
		case "Network.requestWillBeSent":
			if !strings.Contains(string(m.Params), `"url":"file:///`) && !strings.Contains(string(m.Params), `"url":"about:blank`) {
				list = append(list, m.Method+" "+string(m.Params))
			}
		}
	}
	return list
}

// size sets the size of the window, and dark the system's color scheme.
func (b *browser) size(width, height int, dark bool) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	b.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture returns a screenshot as PNG, and also writes it to the directory that
// SBENCH_REPORT_PICTURES names, if any.
func (b *browser) picture(name string) []byte {
	b.t.Helper()
	b.settle()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", object{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	check(b.t, err)
	if dir := os.Getenv("SBENCH_REPORT_PICTURES"); dir != "" {
		check(b.t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644))
	}
	return data
}
