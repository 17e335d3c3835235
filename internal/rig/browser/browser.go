// Package browser drives Chromium without a window, by the DevTools protocol over a pipe. Only tests import it.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"chancery.dev/internal/rig/tool"
)

// patience is how long a command to the browser may take: starting it on a loaded machine takes seconds.
const patience = time.Minute

// Browser is a running browser with one page.
type Browser struct {
	t    testing.TB
	to   *os.File
	page string

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	// errors are the errors in the console since the last call of Errors; loads counts pages.
	errors []string
	loads  chan struct{}
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts Chromium until the test ends. Where there is none it skips the test, and fails it in continuous
// integration.
func Start(t testing.TB) *Browser {
	t.Helper()
	program := tool.Path(t, "chromium")
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirsToo, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	// Root needs --no-sandbox; /dev/shm may be small in a container.
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server",
		"--disable-background-networking", "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, theirsToo} // 3 is read and 4 is written
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "TZ=UTC", "LANG=C.UTF-8")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), theirsToo.Close()
	b := &Browser{t: t, to: to, waiting: map[int]chan message{}, loads: make(chan struct{}, 100)}
	t.Cleanup(func() {
		b.call("", "Browser.close", nil, nil)
		ended := time.AfterFunc(10*time.Second, stop)
		_ = cmd.Wait()
		ended.Stop()
		stop()
		_, _ = to.Close(), from.Close()
	})
	go b.read(bufio.NewReaderSize(from, 1<<20))
	b.attach()
	return b
}

// attach opens a page.
func (b *Browser) attach() {
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.page = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility"} {
		b.do(domain+".enable", nil, nil)
	}
}

// read takes what the browser says: messages that end with a zero byte.
func (b *Browser) read(from *bufio.Reader) {
	for {
		text, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0 && b.waiting[m.ID] != nil:
			b.waiting[m.ID] <- m
			delete(b.waiting, m.ID)
		case m.Method == "Page.loadEventFired":
			select {
			case b.loads <- struct{}{}:
			default:
			}
		case m.Method == "Runtime.exceptionThrown",
			m.Method == "Runtime.consoleAPICalled" && strings.Contains(string(m.Params), `"type":"error"`),
			m.Method == "Log.entryAdded" && strings.Contains(string(m.Params), `"level":"error"`):
			b.errors = append(b.errors, string(m.Params))
		}
		b.mu.Unlock()
	}
}

func (b *Browser) do(method string, params map[string]any, into any) {
	b.t.Helper()
	b.call(b.page, method, params, into)
}

func (b *Browser) call(session, method string, params map[string]any, into any) {
	b.t.Helper()
	b.mu.Lock()
	b.last++
	id, answer := b.last, make(chan message, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	encoded, err := json.Marshal(params)
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := json.Marshal(message{ID: id, SessionID: session, Method: method, Params: encoded})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(m.Result, into); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(patience):
		b.t.Fatalf("%s: the browser does not answer", method)
	}
}

// Size makes the page so wide and so high, in light or dark colours.
func (b *Browser) Size(width, height int, dark bool) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Open goes to an address, and waits until the page is there.
func (b *Browser) Open(url string) {
	b.t.Helper()
	for len(b.loads) > 0 {
		<-b.loads
	}
	b.do("Page.navigate", map[string]any{"url": url}, nil)
	b.Loaded()
}

// Loaded waits until one more page is there.
func (b *Browser) Loaded() {
	b.t.Helper()
	select {
	case <-b.loads:
	case <-time.After(patience):
		b.t.Fatal("the page does not load")
	}
}

// Eval runs JavaScript on the page, and decodes its value.
func (b *Browser) Eval(script string, into any) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.do("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", script, answer.ExceptionDetails)
	}
	if into != nil {
		if err := json.Unmarshal(answer.Result.Value, into); err != nil {
			b.t.Fatalf("%s: %v: %s", script, err, answer.Result.Value)
		}
	}
}

// Press presses a key on the page, such as Tab or Enter.
func (b *Browser) Press(key string) {
	b.t.Helper()
	code := map[string]int{"Tab": 9, "Enter": 13}[key]
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if key == "Enter" && kind == "keyDown" {
			params["text"] = "\r"
		}
		b.do("Input.dispatchKeyEvent", params, nil)
	}
}

// Errors are the errors in the console since the last call.
func (b *Browser) Errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	errors := b.errors
	b.errors = nil
	return errors
}

// Picture is a PNG of the page as it is seen.
func (b *Browser) Picture() []byte {
	b.t.Helper()
	var shot struct{ Data string }
	b.do("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// Element is what a screen reader is told of a part of the page.
type Element struct {
	Role, Name string
}

// String is the role and the name.
func (e Element) String() string { return fmt.Sprintf("%s %q", e.Role, e.Name) }

// Accessible are the elements that a screen reader is told of, in the order of the page.
func (b *Browser) Accessible() (elements []Element) {
	b.t.Helper()
	type value struct{ Value any }
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}
	b.do("Accessibility.getFullAXTree", nil, &tree)
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		role, _ := n.Role.Value.(string) // what has none is empty
		name, _ := n.Name.Value.(string)
		if !slices.Contains([]string{"", "StaticText", "InlineTextBox", "none", "generic"}, role) {
			elements = append(elements, Element{role, strings.TrimSpace(name)})
		}
	}
	return elements
}
