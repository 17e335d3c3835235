// Command compare gives the same Certificates and Ingresses to our controller and to another controller for
// cert-manager's API, each on a separate API server. Then it compares the results of both: certificates, Secrets,
// conditions, events and objects. docs/compatibility.md or CHANGELOG.md must name each difference: any other difference
// is a bug.
//
//	compare -controller PATH [flags] -- [ARGUMENT...]
//
// make compare CONTROLLER=PATH runs the command. It exits with status 1 if there is a difference without a name.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	o := options{settle: 15 * time.Second, settleChallenges: 75 * time.Second, looks: time.Minute}
	flag.StringVar(&o.other, "controller", "", "program of the other controller")
	flag.StringVar(&o.ours, "ours", os.Getenv("CHANCERY_BIN"), "program of ours")
	flag.IntVar(&o.certificates, "certificates", 300, "how many Certificates there are")
	flag.IntVar(&o.ingresses, "ingresses", 200, "how many Ingresses there are")
	flag.Uint64Var(&o.seed, "seed", 1, "which ones: the same number gives the same objects")
	flag.DurationVar(&o.limit, "limit", 15*time.Minute, "how long each controller may take until it changes nothing any more")
	flag.Parse()
	o.arguments, o.progress = flag.Args(), os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	report, err := compare(ctx, o)
	stop()
	if report != nil {
		report.write(os.Stdout)
		if len(report.unnamed()) > 0 {
			err = errors.Join(err, errors.New("differences without a name: see above. Each is to be named in docs/compatibility.md, or is a bug"))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}
