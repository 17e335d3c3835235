package bench

import "fmt"

// cost is what a number of certificates took.
type cost struct {
	count int
	// snapshot is the difference from before to after; reads are GETs of others, which are taken out of it.
	snapshot
	reads counts
	timing
	// parts are the run in sequence, to see whether the last certificates cost what the first did.
	parts []Row
	// resident is the controller's memory at the end, in bytes.
	resident int64
}

func (c *cost) requestsEach() float64 {
	return float64(c.requests.of(classWork).total()) / float64(c.count)
}

// cpuEach is the controller's CPU time in milliseconds, serverCPUEach that of API server and etcd.
func (c *cost) cpuEach() float64       { return millis(c.cpu) / float64(c.count) }
func (c *cost) serverCPUEach() float64 { return millis(c.server) / float64(c.count) }

// flat is what a part of the certificates took.
func (c *cost) flat(name string) []Row {
	return append([]Row{
		{Name: name, Part: "requests each", Value: c.requestsEach()},
		{Name: name, Part: "CPU each", Value: c.cpuEach(), Unit: "ms"},
	}, c.pace().rows(name)...)
}

// rows are the requests, the user's own creation and all events included.
func (c *cost) rows(s scenario) []Row {
	each := c.requests.of(classWork)
	all := []Row{{Name: "requests for each certificate", Value: c.requestsEach()}}
	if s.requestBudget > 0 {
		all[0].Budget = new(float64(s.requestBudget))
	}
	for _, kind := range each.sorted() {
		all = append(all, Row{Name: "… " + kind.String(), Value: float64(each[kind]) / float64(c.count)})
	}
	all = append(all, Row{Name: fmt.Sprintf("requests in the %s after all was issued, if they did not end", settleWithin), Value: float64(c.goingOn), Budget: new(0.0)})
	for _, extra := range []Row{
		c.requests.of(classCache).row("beside that, for caches, in all"),
		c.requests.of(classBackground).row("beside that, for background, in all"),
		c.reads.row("beside that, for the garbage collector, in all"),
		c.sent.row("the controller has sent, in all"),
	} {
		if extra.Value > 0 {
			all = append(all, extra)
		}
	}
	return all
}

// paces compare the certificates with what the API server, and a bare client, reach. A bare of zero is none;
// barely says what it does.
func (c *cost) paces(name, barely string, secrets, bare pace) []Row {
	ours := c.pace()
	all := append(ours.rows(name), secrets.rows("the API server creates Secrets")...)
	if bare != (pace{}) {
		all = append(all, bare.rows(barely)...)
	}
	// Each request costs about a Secret: this is how close we come to the limit that their number sets.
	all = append(all, Row{Name: "share of the rate that the API server allows for that many requests", Value: ours.perSecond * c.requestsEach() / secrets.perSecond})
	if bare != (pace{}) {
		all = append(all,
			Row{Name: "latency p50, times the bare client's", Value: ours.p50 / bare.p50},
			Row{Name: "latency p99, times the bare client's", Value: ours.p99 / bare.p99},
			Row{Name: "rate, share of the bare client's", Value: ours.perSecond / bare.perSecond},
		)
	}
	all = append(all,
		Row{Name: "controller's CPU, times the API server's and etcd's", Value: c.cpuEach() / c.serverCPUEach()},
		Row{Name: "controller's CPU, each", Value: c.cpuEach(), Unit: "ms"},
		Row{Name: "API server's and etcd's CPU, each", Value: c.serverCPUEach(), Unit: "ms"},
		mebibytes("controller's resident memory", c.resident),
	)
	if c.count >= flatnessFrom {
		all = append(all, c.parts...)
	}
	return all
}

// comparedWith divides by what the same certificates cost with our controller.
func (c *cost) comparedWith(ours *cost) []Row {
	theirs, own := c.pace(), ours.pace()
	return []Row{
		{Name: "requests each, times ours", Value: c.requestsEach() / ours.requestsEach()},
		{Name: "latency p50, times ours", Value: theirs.p50 / own.p50},
		{Name: "rate, share of ours", Value: theirs.perSecond / own.perSecond},
		{Name: "controller's CPU each, times ours", Value: c.cpuEach() / ours.cpuEach()},
		{Name: "controller's resident memory, times ours", Value: float64(c.resident) / float64(ours.resident)},
	}
}
