// Command fuzz runs the fuzz targets of all modules one after the other. The targets share the given seconds. For each
// target, the command prints the number of inputs tried. The command fails if a target finds an input that breaks the
// target's property, and then prints where the input is and how to run the input again.
//
//	fuzz -seconds 60
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	seconds := flag.Int("seconds", 60, "how long all targets together look for inputs; each takes one second at least")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	targets, err := find(os.DirFS("."))
	if err == nil {
		err = run(ctx, os.Stdout, targets, share(time.Duration(*seconds)*time.Second, len(targets)), command)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is a fuzz function.
type target struct {
	// dir is the directory of its package.
	dir, name string
}

// function is a fuzz function in a file of tests.
var function = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// find returns the targets below a directory, by directory and name.
func find(root fs.FS) ([]target, error) {
	var found []target
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (base == "testdata" || name != "." && strings.HasPrefix(base, ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(base, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		for _, match := range function.FindAllSubmatch(text, -1) {
			found = append(found, target{dir: path.Dir(name), name: string(match[1])})
		}
		return err
	})
	slices.SortFunc(found, func(a, b target) int { return strings.Compare(a.dir+" "+a.name, b.dir+" "+b.name) })
	return found, err
}

// share is how long one of n targets looks for inputs.
func share(all time.Duration, n int) time.Duration {
	return max(all/time.Duration(max(n, 1)), time.Second)
}

// result is what one target came to.
type result struct {
	tried, interesting int
	// crashers are the inputs that break the property, as files, or the words of a failure without one.
	crashers []string
	// failed says that the target did not run.
	failed bool
}

// run prints a line for each target and one for all. each runs one target.
func run(ctx context.Context, w io.Writer, targets []target, long time.Duration, each func(context.Context, target, time.Duration) ([]byte, error)) error {
	var all result
	var broken []string
	began := time.Now()
	for _, t := range targets {
		from := time.Now()
		out, err := each(ctx, t, long)
		r := read(out, err)
		fmt.Fprintf(w, "%-28s %9d inputs in %4.0f s, %4d new interesting, %d crashers  %s\n",
			t.name, r.tried, time.Since(from).Seconds(), r.interesting, len(r.crashers), t.dir)
		all.tried, all.interesting, all.crashers = all.tried+r.tried, all.interesting+r.interesting, append(all.crashers, r.crashers...)
		if r.failed || len(r.crashers) > 0 {
			fmt.Fprintf(w, "%s\n", bytes.TrimSpace(out))
			broken = append(broken, t.name)
		}
		for _, c := range r.crashers {
			fmt.Fprintf(w, "the input is %s: run it again with go test -C %s -run '^%s$/%s' ., and keep the file once it passes\n",
				path.Join(t.dir, c), t.dir, t.name, path.Base(c))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(w, "%d targets tried %d inputs in %.0f s: %d new interesting, %d crashers\n",
		len(targets), all.tried, time.Since(began).Seconds(), all.interesting, len(all.crashers))
	switch {
	case len(targets) == 0:
		return fmt.Errorf("there is no target")
	case len(broken) > 0:
		return fmt.Errorf("%s failed", strings.Join(broken, ", "))
	}
	return nil
}

var (
	progress = regexp.MustCompile(`(?m)^fuzz: elapsed: .*, execs: (\d+) .*new interesting: (\d+)`)
	written  = regexp.MustCompile(`(?m)^\s*Failing input written to (\S+)`)
	seed     = regexp.MustCompile(`(?m)^failure while testing seed corpus entry: (\S+)`)
	// lateEnd is how the fuzzer of Go fails now and then when its time is over (go.dev/issue/48591): nothing is wrong.
	lateEnd = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \([0-9.]+s\)\n\s+context deadline exceeded\nFAIL`)
)

// read reads what go test has printed.
func read(out []byte, err error) result {
	var r result
	if all := progress.FindAllSubmatch(out, -1); len(all) > 0 {
		last := all[len(all)-1]
		r.tried, _ = strconv.Atoi(string(last[1])) // it is digits
		r.interesting, _ = strconv.Atoi(string(last[2]))
	}
	for _, m := range written.FindAllSubmatch(out, -1) {
		r.crashers = append(r.crashers, string(m[1]))
	}
	for _, m := range seed.FindAllSubmatch(out, -1) {
		r.crashers = append(r.crashers, "testdata/fuzz/"+string(m[1]))
	}
	r.failed = err != nil && len(r.crashers) == 0 && !lateEnd.Match(out)
	return r
}

// command runs one target with go test, which takes one at a time. New interesting inputs are not made small for long:
// that takes as long as all of the time that a target has here.
func command(ctx context.Context, t target, long time.Duration) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-C", t.dir, "-vet=off", "-run=^$", "-fuzz=^"+t.name+"$",
		"-fuzztime="+long.String(), "-fuzzminimizetime=20x", ".")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}
