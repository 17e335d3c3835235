package schedule

import (
	"fmt"
	"math/rand"
	"syscall"
	"testing"
	"time"
)

// queue is n challenges in n/100 namespaces, of ten issuers, every second name twice.
func queue(n int) []Challenge {
	challenges := make([]Challenge, n)
	for i := range challenges {
		c := challenge(fmt.Sprintf("n%d", i%max(1, n/100)), fmt.Sprintf("c%d", i), fmt.Sprintf("d%d.example.com", i/2), i)
		c.Issuer = fmt.Sprintf("i%d", i%10)
		challenges[i] = c
	}
	return challenges
}

// full is a scheduler with n challenges, known in random order.
func full(o Options, challenges []Challenge) *Scheduler {
	s := New(o)
	for _, i := range rand.Perm(len(challenges)) {
		s.Set(challenges[i])
	}
	return s
}

// load is a scheduler and the objects that it is told about.
type load struct {
	*Scheduler

	all     map[Key]Challenge
	running []Key
}

func newLoad(n int, o Options) *load {
	challenges := queue(n)
	l := &load{Scheduler: full(o, challenges), all: map[Key]Challenge{}}
	for _, c := range challenges {
		l.all[c.Key] = c
	}
	return l
}

// pass decides, and does what it decides.
func (l *load) pass() {
	for _, d := range l.Next(epoch).Decisions {
		c := l.all[d.Key]
		c.Processing = true
		l.Set(c)
		l.Answered(d.Key, true)
		l.running = append(l.running, d.Key)
	}
}

// end ends a challenge; a new one like it keeps the queue as long as it is.
func (l *load) end() {
	c := l.all[l.running[0]]
	l.Remove(c.Key)
	l.Set(c)
	l.running = l.running[1:]
}

// cpu is the CPU time of this process: on a busy machine, the clock says little about what something costs.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// reportCPU adds the CPU time of each round since a time; the collection of garbage is in it.
func reportCPU(b *testing.B, since time.Duration) {
	b.Helper()
	b.ReportMetric(float64((cpu()-since).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// BenchmarkEvent is one challenge that ends, and the pass that starts the next.
func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		for _, issuerCap := range []int{0, 10} {
			b.Run(fmt.Sprintf("queued=%d/issuerCap=%d", n, issuerCap), func(b *testing.B) {
				l := newLoad(n, Options{Cap: DefaultCap, IssuerCap: issuerCap})
				since := cpu()
				for b.Loop() {
					l.pass()
					l.end()
				}
				reportCPU(b, since)
			})
		}
	}
}

// BenchmarkPass fills all slots while everything is queued. What it has started is queued again before the next one.
func BenchmarkPass(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("queued=%d", n), func(b *testing.B) {
			l := newLoad(n, Options{Cap: DefaultCap})
			since := cpu()
			for b.Loop() {
				started := l.Next(epoch).Decisions
				if len(started) < DefaultCap*3/4 { // of a hundred, half have a name that is busy
					b.Fatalf("%d were started", len(started))
				}
				for _, d := range started {
					l.Answered(d.Key, true)
				}
			}
			reportCPU(b, since)
		})
	}
}

// BenchmarkBusySecond is a second in which 200 challenges end, one every 5 ms, and the passes of that second.
func BenchmarkBusySecond(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("queued=%d", n), func(b *testing.B) {
			l, passes := newLoad(n, Options{Cap: 200}), 0
			l.pass()
			b.ResetTimer()
			since := cpu()
			for range b.N {
				rested := time.Duration(0)
				for now := time.Duration(0); now < time.Second; now += 5 * time.Millisecond {
					l.end()
					if now >= rested {
						l.pass()
						passes++
						rested = now + l.Rest()
					}
				}
			}
			b.ReportMetric(float64(cpu()-since)/float64(b.N)/float64(time.Second)*100, "%core")
			b.ReportMetric(float64(passes)/float64(b.N), "passes")
		})
	}
}

// BenchmarkWaiting is one self check that fails again, while nobody waits for a slot.
func BenchmarkWaiting(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("inFlight=%d", n), func(b *testing.B) {
			challenges := queue(n)
			for i := range challenges {
				c := &challenges[i]
				c.DNSName, c.Processing, c.Presented, c.Yields = c.Name+".example.com", true, true, true
			}
			s := full(Options{Cap: n}, challenges)
			i := 0
			for b.Loop() {
				c := &challenges[i%n]
				i++
				c.NotBefore = c.NotBefore.Add(1)
				if s.Set(*c) {
					b.Fatal("it needs a pass")
				}
			}
		})
	}
}
